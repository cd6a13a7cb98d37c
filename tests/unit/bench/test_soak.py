"""What a soak takes for a failure, and whom it watches."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from bench.soak import Growth, growth, problems, served
from outrider.cli.load.summary import summary

FLAT = {
    "run": Growth(60.0, 60.1, 0.2, ended=False),
    "target 0 engine": Growth(500.0, 524.0, 4.8, ended=False),
}
WELL = summary([]) | {"completed": 6, "texts": {"compared": 1, "differences": []}}
WRONG = {"texts": {"compared": 1, "differences": ["prompt 0"]}}
PARENT = """
import subprocess, sys
with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
    print("started", flush=True)
    sys.stdin.read()
"""
SAID = """\
Serving tiny.
  OpenAI API at http://127.0.0.1:8000/v1
  gRPC at 127.0.0.1:50051
  tiny-draft-0   127.0.0.1:41235, process %d
  tiny-target-0  127.0.0.1:50051, process %d
Ctrl-C stops it.
"""


def test_answered_and_given_up_requests_are_no_problem() -> None:
    assert problems(WELL | {"interrupted": 2, "rejected": 1}, FLAT) == []


@pytest.mark.parametrize(
    ("soaked", "grown", "words"),
    [
        ({"failed": 1, "problems": {"cut": 1}}, {}, "1 requests lost: cut"),
        ({"completed": 0}, {}, "no request completed"),
        (WRONG, {}, "1 answers have a wrong text"),
        ({}, {"run": Growth(500.0, 526.0, 5.2, False)}, "run grew by 5.2 %, from 500 to 526 MiB"),
        ({}, {"run": Growth(500.0, 500.0, 0.0, True)}, "run ended"),
    ],
)
def test_what_is_lost_wrong_or_grows_is_said(
    soaked: Mapping[str, Any], grown: Mapping[str, Growth], words: str
) -> None:
    assert problems(WELL | dict(soaked), FLAT | dict(grown)) == [words]


def test_growth_is_from_the_first_fifth_to_the_last() -> None:
    mib = 2**20
    found = growth([100 * mib] * 2 + [500 * mib] * 6 + [150 * mib] * 2)
    assert found == Growth(100.0, 150.0, 50.0, ended=False)
    assert growth([mib, mib, 0]) == Growth(1.0, 1.0, 0.0, ended=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_each_process_of_a_run_has_its_role() -> None:
    command = [sys.executable, "-c", PARENT]
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as draft,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target,
    ):
        assert target.stdout is not None
        target.stdout.readline()
        service = served(SAID % (draft.pid, target.pid), 7)
        roles = sorted(service.processes.values())
    assert service.url == "http://127.0.0.1:8000/v1"
    assert roles == ["draft 0", "run", "target 0 engine", "target 0 server"]
