"""Where bytecode goes in an environment that forbids it beside sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli import __main__ as bytecode

SHOWS = "from outrider.cli.__main__ import keep_bytecode; keep_bytecode(); import wave, os, sys; "
SHOWS += "print(sys.pycache_prefix, os.environ.get('PYTHONDONTWRITEBYTECODE'))"


@pytest.fixture(scope="module")
def portion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the command line without bytecode."""
    folder = tmp_path_factory.mktemp("portion")
    ignored = shutil.ignore_patterns("__pycache__")
    own = Path(bytecode.__file__).parent
    shutil.copytree(own, folder / "outrider" / "cli", ignore=ignored)
    return folder


def run(portion: Path, home: Path, *arguments: str, **variables: str) -> str:
    """Return what Python prints with that copy, and with no folder for bytecode but a given one."""
    paths = [str(portion), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    unset = (bytecode.FOLDER, bytecode.FORBIDDEN)
    own = {key: value for key, value in os.environ.items() if key not in unset}
    own |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout


def test_it_goes_to_the_users_cache_where_it_is_forbidden(portion: Path, tmp_path: Path) -> None:
    shown = run(portion, tmp_path, "-c", SHOWS, PYTHONDONTWRITEBYTECODE="1")
    kept = tmp_path / ".cache" / "outrider" / "bytecode"
    assert shown == f"{kept} \n"  # the processes that this one starts may write it
    assert list(kept.rglob("wave.*.pyc"))


def test_the_command_keeps_it_before_it_imports_more(portion: Path, tmp_path: Path) -> None:
    arguments = ("-m", "outrider.cli", "--version")
    run(portion, tmp_path, *arguments, PYTHONDONTWRITEBYTECODE="1")
    assert list(tmp_path.rglob("app.*.pyc"))
    assert not list(portion.rglob("*.pyc"))


def test_a_folder_that_is_given_is_left_alone(portion: Path, tmp_path: Path) -> None:
    given = {bytecode.FOLDER: str(tmp_path / "given"), bytecode.FORBIDDEN: "1"}
    assert run(portion, tmp_path, "-c", SHOWS, **given) == f"{tmp_path / 'given'} 1\n"


def test_what_was_compiled_when_it_was_installed_is_used(portion: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(portion, installed)
    assert run(installed, tmp_path, "-c", SHOWS) == "None None\n"  # not forbidden: beside sources
    assert list(installed.rglob("__main__.*.pyc"))
    assert run(installed, tmp_path, "-c", SHOWS, PYTHONDONTWRITEBYTECODE="1") == "None 1\n"


def test_without_a_home_it_goes_to_the_temporary_cache(portion: Path, tmp_path: Path) -> None:
    homeless = "import os, sys; del os.environ['HOME']; sys.modules['pwd'] = None; "
    given = {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    shown = run(portion, tmp_path, "-c", homeless + SHOWS, **given)
    assert shown == f"{tmp_path / f'outrider-cache-{os.getuid()}' / 'bytecode'} \n"
    version = "sys.argv = ['outrider', '--version']; from outrider.cli.__main__ import main; main()"
    shown = run(portion, tmp_path, "-c", homeless + version, **given)
    assert shown.startswith("outrider ")


def test_where_its_folder_cannot_be_made_all_stays_as_it_is(portion: Path, tmp_path: Path) -> None:
    (tmp_path / ".cache").touch()
    (tmp_path / f"outrider-cache-{os.getuid()}").touch()
    given = {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    assert run(portion, tmp_path, "-c", SHOWS, **given) == "None 1\n"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_where_its_folder_cannot_be_written_all_stays_as_it_is(
    portion: Path, tmp_path: Path
) -> None:
    (tmp_path / ".cache" / "outrider" / "bytecode").mkdir(mode=0o500, parents=True)
    assert run(portion, tmp_path, "-c", SHOWS, PYTHONDONTWRITEBYTECODE="1") == "None 1\n"
