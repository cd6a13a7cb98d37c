"""The cache of compiled code, between processes and between copies of the sources."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import caching, dispatcher, errors

from outrider.contract.files import temporary_cache
from outrider.kernels.cpu import linear
from outrider.kernels.jit import compiled, isa
from outrider.kernels.jit.compiled import Locator, SharedCache, njit
from tests.unit.kernels import shared_work

PROCESSES = 3


def test_without_a_home_compiled_code_lies_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiled.folder().parent.parent == temporary_cache()


def test_copies_that_start_together_compile_a_function_once(tmp_path: Path) -> None:
    runs = [start_copy(tmp_path, str(number)) for number in range(PROCESSES)]
    while len(list(tmp_path.glob("ready-*"))) < PROCESSES:
        assert all(run.poll() is None for run in runs)
        time.sleep(0.01)
    (tmp_path / "start").touch()
    said = [run.communicate()[0].split() for run in runs]
    assert sorted(said) == [["0", "0"]] * (PROCESSES - 1) + [["1", "1"]]


def start_copy(folder: Path, number: str) -> subprocess.Popen[str]:
    """Start the shared work from a portion of the namespace of its own."""
    portion = folder / number
    source = portion / "outrider" / "shared" / "work.py"
    source.parent.mkdir(parents=True)
    shutil.copyfile(shared_work.__file__, source)
    paths = [str(portion), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    command = [sys.executable, str(source), str(folder), number]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_code_lies_at_the_same_place_wherever_its_sources_are() -> None:
    assert Locator.get_suitable_cache_subpath(isa.__file__) == "kernels/jit"
    assert Locator.get_suitable_cache_subpath(linear.__file__) == "kernels/cpu"


def test_functions_of_others_are_told_apart_by_their_folders() -> None:
    own, other = (
        Locator.get_suitable_cache_subpath(f"/{name}/module.py") for name in ("one", "other")
    )
    assert own != other


def test_functions_of_others_have_the_cache_that_numba_gives_them() -> None:
    assert type(dispatcher.FunctionCache(linear.linear.py_func)) is SharedCache
    assert type(dispatcher.FunctionCache(start_copy)) is caching.FunctionCache


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_another_compiler_has_another_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled.folder()
    monkeypatch.setattr(getattr(compiled, name), "__version__", "0.0")
    assert compiled.folder() != before


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for the functions of the test, whose caches are shared ones."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(dispatcher, "FunctionCache", SharedCache)
    compiled.warn_unlocked.cache_clear()
    yield tmp_path
    compiled.warn_unlocked.cache_clear()


def open_locks(folder: Path) -> list[Path]:
    """Return the lock files in a folder that this process has open."""
    targets = [entry.resolve() for entry in Path("/proc/self/fd").iterdir()]
    return [t for t in targets if t.is_relative_to(folder) and t.suffix == ".lock"]


def test_nobody_waits_for_a_function_that_does_not_compile(cache: Path) -> None:
    @njit()
    def fails(number):
        return number.nothing

    with pytest.raises(errors.TypingError):
        fails(1)
    (lock,) = cache.rglob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_lock_is_held_while_a_function_is_compiled(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    save = caching.FunctionCache.save_overload

    def look(self: Any, *arguments: Any) -> None:
        held.append(len(open_locks(cache)))
        save(self, *arguments)

    monkeypatch.setattr(caching.FunctionCache, "save_overload", look)

    @njit()
    def half(number):
        return number / 2

    assert half(4) == 2
    assert held == [2]  # the signature's, and the index's
    assert not open_locks(cache)


def test_files_that_cannot_be_locked_are_told_once_and_closed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    @njit()
    def twice(number):
        return 2 * number

    @njit()
    def thrice(number):
        return 3 * number

    assert (twice(2), thrice(2)) == (4, 6)
    assert len(list(cache.rglob("*.lock"))) == 4
    assert not open_locks(cache)
    assert caplog.text.count("No locks available") == 1


def test_another_signature_is_compiled_meanwhile(cache: Path) -> None:
    @njit()
    def third(number):
        return number / 3

    assert third(3) == 1
    (lock,) = (file for file in cache.rglob("*.lock") if "index" not in file.name)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as one that compiles for integers
        assert third(3.0) == 1
    assert len(list(cache.rglob("*.nbc"))) == 2


def test_a_call_with_a_constant_takes_the_code_for_all_numbers(cache: Path) -> None:
    @njit()
    def added(number, other):
        return number + other

    @njit()
    def total(count):
        found = 0
        for number in range(count):
            found = added(found, number)
        return found + added(1, 2)

    assert total(4) == 9
    assert [list(map(str, arguments)) for arguments in added.signatures] == [["int64", "int64"]]
