"""Tests that compute run in a pytest of their own, beside those of this folder."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = "tests/process/test_make_images.py"
UNIT = "tests/unit/test_layout.py::test_no_folder_of_tests_is_a_package"


def test_unit_tests_run_beside_tests_of_processes_and_share_their_summary(tmp_path: Path) -> None:
    options = ("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    command = [sys.executable, "-m", "pytest", *options, HERE, UNIT]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "= 6 passed in" in said
    assert "1 passed in" in (tmp_path / "base" / "unit0" / "pytest.log").read_text()
