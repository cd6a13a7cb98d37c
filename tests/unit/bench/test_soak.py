"""What a soak takes for a failure, and whom it watches."""

import subprocess
import sys
from dataclasses import replace

import pytest

from bench.soak import problems, served
from outrider.cli.load.memory import MemoryGrowth
from outrider.cli.load.summary import Summary, summary
from outrider.cli.load.texts import Difference, TextCheck

ROLES = {1: "run", 2: "target 0 engine"}
FLAT = [MemoryGrowth(1, 60.0, 60.1, 0.2, False), MemoryGrowth(2, 500.0, 524.0, 4.8, False)]
WELL = replace(summary([], memory=FLAT), sent=9, completed=6, cancelled=2, rejected=1)
WRONG = Difference(0, "Hi", 1, 0.0, 3, "a", "b")
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


def test_answered_cancelled_and_refused_requests_are_no_problem() -> None:
    assert problems(WELL, ROLES) == []


@pytest.mark.parametrize(
    ("soaked", "words"),
    [
        (replace(WELL, completed=5, failed=1, problems={"cut": 1}), "1 requests lost: cut"),
        (replace(WELL, completed=5, interrupted=1), "1 of 9 requests lost"),
        (replace(WELL, sent=3, completed=0), "no request completed"),
        (replace(WELL, texts=TextCheck(1, 1, (WRONG,))), "1 answers have a wrong text"),
        (
            replace(WELL, memory=[FLAT[0], MemoryGrowth(2, 500.0, 526.0, 5.2, False)]),
            "target 0 engine grew by 5.2 %, from 500 to 526 MiB",
        ),
        (replace(WELL, memory=[FLAT[0], MemoryGrowth(2, 500.0, 500.0, 0.0, True)]), "engine ended"),
        (replace(WELL, memory=FLAT[:1]), "target 0 engine ended before it was looked at"),
    ],
)
def test_what_is_lost_wrong_or_grows_is_said(soaked: Summary, words: str) -> None:
    (said,) = problems(soaked, ROLES)
    assert words in said


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
