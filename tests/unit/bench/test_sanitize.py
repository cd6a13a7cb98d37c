import time
from pathlib import Path

import pytest

pytest.importorskip("triton")

from bench.device import ROOT, TIMED_OUT, log_lines, started
from bench.gpu import sanitize
from bench.gpu.sanitize import FOUND_ERRORS, TOOLS, Sanitizer, verdict

PASSED = ["a.py::test_a PASSED  [ 50%]", "a.py::test_b PASSED  [100%]"]
BANNER = "========= COMPUTE-SANITIZER"
CLEAN = "========= ERROR SUMMARY: 0 errors"
INVALID = [
    "========= Invalid __global__ read of size 2 bytes",
    "=========     at attend_group+0x3f0",
]
FAKE = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
[ "$2" = synccheck ] && exit 1
echo "a.py::test_a PASSED"
[ "$2" = racecheck ] && {
  echo "========= Error: Race reported between Write access at a and Read access at b"
  echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
  exit 86
}
echo "========= ERROR SUMMARY: 0 errors"
"""


def test_a_tool_is_clean_only_if_it_says_so_and_all_tests_pass() -> None:
    assert verdict([BANNER, *PASSED, CLEAN], 0, 60) == {"found": "clean", "passed": 2}
    assert verdict([BANNER, *PASSED], 0, 60)["failed"].startswith("exit status 0, 2 tests")
    assert verdict([BANNER, *PASSED, CLEAN], 1, 60)["failed"].startswith("exit status 1, 2 tests")
    assert verdict([], 255, 60)["failed"] == "exit status 255, 0 tests passed; no output"


def test_what_a_tool_finds_is_counted_and_quoted() -> None:
    summary = "========= ERROR SUMMARY: 3 errors"
    session = "============================= test session starts ============================="
    found = verdict([session, BANNER, *INVALID, *PASSED, summary], FOUND_ERRORS, 60)
    assert found == {
        "failed": "3 errors found, 2 tests passed; the first: "
        "Invalid __global__ read of size 2 bytes"
    }
    cut = verdict([BANNER, *INVALID, *PASSED[:1]], TIMED_OUT, 60)
    assert cut["failed"].startswith("cut off after 60 s, 1 tests passed; Invalid __global__ read")


def test_every_tool_has_a_row_though_others_fail(tmp_path: Path) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(FAKE)
    program.chmod(0o755)
    sanitizer = Sanitizer(str(program), tmp_path, time.monotonic() + 600)
    rows = {task.name: task.measure() for task in sanitize.tasks(sanitizer, {})}
    assert list(rows) == list(TOOLS)
    assert rows["memcheck"] == {"found": "clean", "passed": 1}
    assert rows["racecheck"]["failed"].startswith(
        "2 errors found, 1 tests passed; the first: Error"
    )
    assert rows["synccheck"]["failed"].startswith("exit status 1")


def test_without_the_program_every_tool_says_so(tmp_path: Path) -> None:
    rows = [task.measure() for task in sanitize.tasks(Sanitizer(None, tmp_path, 0.0), {})]
    assert rows == [{"failed": "not run: there is no compute-sanitizer here"}] * len(TOOLS)


def test_its_tests_are_there(tmp_path: Path) -> None:
    ids = [*(f"{sanitize.SMALL}/{name}" for name in sanitize.SMALL_TESTS), sanitize.GROWTH_TEST]
    words = [*sanitize.PYTEST, "--collect-only", "-q", *ids]
    assert started(words, tmp_path / "small.log", 300) == 0
    assert set(ids) <= set(log_lines(tmp_path, "small"))
    assert (ROOT / sanitize.PRODUCTION).is_dir()
    assert sanitize.production_tests(tmp_path)
