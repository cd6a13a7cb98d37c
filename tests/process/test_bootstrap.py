"""tools/bootstrap finds or makes a uv. Stand-ins for uv and Python: nothing is downloaded."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD_UV = "#!/bin/sh\nexit 0\n"
OLD_UV = "#!/bin/sh\necho 'required-version is not met' >&2\nexit 2\n"
# A Python that is new enough; `-m venv DIR` makes a python whose pip "installs" a uv that works.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
[ "$2" = venv ] && { VENV }
[ "$2 $3" = "pip --version" ] && { PIP }
dir=$(dirname "$0")
while [ $# -gt 0 ]; do [ "$1" = --target ] && dir=$2/bin; shift; done
mkdir -p "$dir" && printf '#!/bin/sh\\nexit 0\\n' > "$dir/uv" && chmod +x "$dir/uv"
"""
MAKES_VENV = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit 0;'
FAILS = "exit 1;"
WORKS = "exit 0;"
TOOLS = ("sh", "dirname", "rm", "mkdir", "cp", "chmod")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with nothing but the script, and a PATH folder `bin` with nothing but a shell."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "bootstrap", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def put(tree: Path, name: str, script: str) -> Path:
    path = tree / "bin" / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def python(venv: str, pip: str) -> str:
    return PYTHON.replace("VENV", venv).replace("PIP", pip)


def bootstrap(tree: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(tree / "bin")}
    return subprocess.run(
        [tree / "tools" / "bootstrap"], env=environment, cwd="/", capture_output=True, text=True
    )


def test_a_uv_on_the_path_that_is_new_enough_is_taken(tree: Path) -> None:
    uv = put(tree, "uv", GOOD_UV)
    assert bootstrap(tree).stdout == f"{uv}\n"
    assert not (tree / ".uv").exists()


def test_an_old_uv_is_passed_over_for_the_pinned_one(tree: Path) -> None:
    put(tree, "uv", OLD_UV)
    put(tree, "python3", python(MAKES_VENV, WORKS))
    run = bootstrap(tree)
    assert run.stdout == f"{tree}/.uv/bin/uv\n"
    assert "installing uv" in run.stderr


def test_the_second_run_installs_nothing(tree: Path) -> None:
    interpreter = put(tree, "python3", python(MAKES_VENV, WORKS))
    bootstrap(tree)
    interpreter.unlink()
    run = bootstrap(tree)
    assert (run.stdout, run.stderr) == (f"{tree}/.uv/bin/uv\n", "")


def test_a_broken_install_is_made_again(tree: Path) -> None:
    put(tree, "python3", python(MAKES_VENV, WORKS))
    (tree / ".uv" / "bin").mkdir(parents=True)
    assert bootstrap(tree).stdout == f"{tree}/.uv/bin/uv\n"


def test_a_python_without_venv_installs_with_its_pip(tree: Path) -> None:
    put(tree, "python3", python(FAILS, WORKS))
    assert bootstrap(tree).stdout == f"{tree}/.uv/bin/uv\n"


def test_a_python_without_venv_and_pip_is_told_what_to_install(tree: Path) -> None:
    put(tree, "python3", python(FAILS, FAILS))
    run = bootstrap(tree)
    assert (run.returncode, run.stdout) == (1, "")
    assert "install its venv package" in run.stderr


def test_a_machine_without_python_is_told_what_is_needed(tree: Path) -> None:
    put(tree, "python3", "#!/bin/sh\nexit 1\n")  # older than 3.11
    run = bootstrap(tree)
    assert (run.returncode, run.stdout) == (1, "")
    assert "Python 3.11 or newer is needed" in run.stderr
