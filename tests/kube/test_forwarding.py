"""How the tests of this folder run beside others, from a pytest outside any pod network."""

import os
import subprocess
import sys
from pathlib import Path

from tests.kube import pod_network

ROOT = Path(__file__).parents[2]
INSIDE = "tests/kube/test_pod_files.py"
OUTSIDE = "tests/unit/test_layout.py::test_no_folder_of_tests_is_a_package"


def run(*tests: str, **environment: str) -> str:
    """What pytest says that knows of no pod network."""
    known = {key: value for key, value in os.environ.items() if key != pod_network.VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**known, **environment},
        capture_output=True,
        text=True,
    ).stdout


def test_tests_of_this_folder_and_others_share_one_summary() -> None:
    assert "= 5 passed in" in run(INSIDE, OUTSIDE)


def test_tests_of_this_folder_are_reported_last_for_they_run_beside_the_others() -> None:
    said = run("-v", INSIDE, OUTSIDE)
    assert 0 < said.index(OUTSIDE) < said.index(INSIDE)


def test_what_cannot_be_made_is_told_by_tests_of_this_folder_and_by_no_others(
    tmp_path: Path,
) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\n[ "$1" = cache ] || { echo "no such package" >&2; exit 1; }\n')
    uv.chmod(0o755)
    said = run(
        INSIDE,
        OUTSIDE,
        PATH=f"{tmp_path}:/usr/bin:/bin",
        KUBEBUILDER_ASSETS="",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert "= 1 passed, 4 errors in" in said
    assert "ended with 1:\n" in said
