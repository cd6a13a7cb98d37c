"""Commands of somebody who has no home, or one that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.kernels.jit import compiled
from tests.process.service_run import OUTRIDER
from tests.tiny_models import write_tiny

SERVICE = """\
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec: {target: {model: {uri: "file://%s"}, engine: {dtype: fp32}}}
"""
SECONDS = 300.0
UNKNOWN = "import sys; sys.modules['pwd'] = None; from outrider.cli.__main__ import main; main()"
"""Runs the command where nobody knows the user."""


@pytest.fixture
def homeless(tmp_path: Path) -> dict[str, str]:
    """An environment whose home is a file."""
    (tmp_path / "home").touch()
    (tmp_path / "temporary").mkdir()
    elsewhere = ("OUTRIDER_CACHE", "XDG_CACHE_HOME")
    return {name: value for name, value in os.environ.items() if name not in elsewhere} | {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "temporary"),
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),
        "OMP_NUM_THREADS": "1",
    }


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.mark.timeout(2 * SECONDS)
def test_a_service_runs_with_a_temporary_cache_and_says_so(
    homeless: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE % write_tiny(tmp_path / "model"))
    asked = ("run", "-f", str(file), "--raw", "--prompt", "abc", "--max-tokens", "3")
    done = run(homeless, *OUTRIDER, *asked)
    assert done.returncode == 0, done.stderr
    wanted = tmp_path / "home" / ".cache" / "outrider"
    assert f"there is no {wanted} to write to (OUTRIDER_CACHE names another place)" in done.stderr
    (kept,) = (tmp_path / "temporary").glob("outrider-cache-*")
    assert list((kept / "models").iterdir())


@pytest.mark.parametrize("command", [("models", "list"), ("models", "list", "--json")])
def test_a_user_whom_nobody_knows_is_told_once_where_things_are_kept(
    homeless: dict[str, str], command: tuple[str, ...]
) -> None:
    del homeless["HOME"]
    done = run(homeless, sys.executable, "-P", "-c", UNKNOWN, *command)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert homeless["TMPDIR"] in done.stderr


def test_where_nothing_can_be_kept_one_line_says_why(homeless: dict[str, str]) -> None:
    folder = Path(homeless["TMPDIR"], f"outrider-cache-{os.getuid()}")
    folder.touch()
    done = run(homeless, *OUTRIDER, "models", "list")
    assert done.returncode == 1
    assert done.stderr.startswith(f"outrider: {folder}: ")
    assert done.stderr.count("\n") == 1
