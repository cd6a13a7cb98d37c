"""Tests that compute run in a pytest of their own, beside those of this folder."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.inner_pytest import InnerPytest

ROOT = Path(__file__).parents[2]
HERE = "tests/process/test_make_images.py"
UNIT = "tests/unit/test_layout.py::test_no_folder_of_tests_is_a_package"


def test_unit_tests_run_beside_tests_of_processes_and_share_their_summary(tmp_path: Path) -> None:
    options = ("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    command = [sys.executable, "-m", "pytest", *options, HERE, UNIT]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "= 6 passed in" in said
    assert "1 passed in" in (tmp_path / "base" / "unit0" / "pytest.log").read_text()


def test_a_pytest_that_dies_after_its_last_test_is_reported(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of no test could it be said: all of them have passed."""
    dying = "import subprocess, sys; subprocess.run(sys.argv[1:], close_fds=False); sys.exit(3)"
    item: Any = SimpleNamespace(nodeid=UNIT, location=("", 0, ""), keywords={})
    inner = InnerPytest(request.config, [item], tmp_path, (sys.executable, "-c", dying))
    *passed, last = inner.reports(item)
    assert [report.outcome for report in passed] == ["passed"] * 3
    assert last.failed
    assert "the pytest that ran it ended with 3" in last.longreprtext
