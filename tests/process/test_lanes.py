"""Unit tests, and half of the files of this folder, run in pytests beside the other half."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.inner_pytest import InnerPytest

ROOT = Path(__file__).parents[2]
EARLIER, HERE = "tests/process/test_bootstrap.py", "tests/process/test_make_images.py"
UNIT = "tests/unit/test_layout.py::test_no_folder_of_tests_is_a_package"
KUBE = "tests/kube/test_pod_network.py::test_servers_end_with_a_command_that_was_killed"
# Fails, once it may, to fetch what Kubernetes' servers are made of.
UV = """#!/bin/sh
[ "$1 $2" = "cache dir" ] && exit
until [ -e {may_fail} ]; do sleep 0.1; done
echo "no such wheel" >&2
exit 1
"""


def test_unit_tests_and_half_of_the_others_run_beside_the_rest(tmp_path: Path) -> None:
    options = ("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    command = [sys.executable, "-m", "pytest", *options, EARLIER, HERE, UNIT]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "= 13 passed in" in said
    assert "5 passed in" in (tmp_path / "base" / "process0" / "pytest.log").read_text()
    assert "1 passed in" in (tmp_path / "base" / "unit0" / "pytest.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="needs network namespaces")
def test_servers_are_made_beside_other_tests_and_tests_say_why_they_cannot_be(
    tmp_path: Path,
) -> None:
    may_fail, uv = tmp_path / "may-fail", tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(may_fail=may_fail))
    uv.chmod(0o755)
    here = {"PATH": f"{uv.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", HERE, KUBE]
    with subprocess.Popen(
        [*command, f"--basetemp={tmp_path / 'base'}"],
        cwd=ROOT,
        env={**os.environ, **here, "KUBEBUILDER_ASSETS": ""},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout
        passed = (line for line in run.stdout if "test_make_images.py" in line and "PASSED" in line)
        assert len([next(passed) for _ in range(5)]) == 5
        may_fail.touch()
        rest = run.stdout.read()
    assert "tests/kube: uv pip install ended with 1:\nno such wheel" in rest
    assert "= 5 passed, 1 error in" in rest


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
