"""Sizes of `bench.install`, and its sets."""

import sys
import tomllib
from pathlib import Path

import pytest

from bench.install import ROOT, SETS, Install, Took, measured, seconds_to_ready


def test_every_file_counts_but_compiled_bytecode(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "one").mkdir(parents=True)
    (packages / "one-1.0.dist-info").mkdir()
    (packages / "one" / "code.py").write_bytes(bytes(1_500_000))
    (packages / "one" / "code.pyc").write_bytes(bytes(1_500_000))
    (packages / "one-1.0.dist-info" / "RECORD").write_bytes(bytes(500_000))
    took = Took(2.5, 1.0)
    assert measured(tmp_path, took) == Install(2.0, 1, took)


def test_every_set_can_be_installed() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = {
        "--group": tables["dependency-groups"],
        "--extra": tables["project"]["optional-dependencies"],
    }
    assert all(name in known[kind] for kind, name in SETS.values())


def test_a_service_that_serves_is_stopped(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    code = (
        "import pathlib, sys, time\n"
        "print('loading')\n"
        "try:\n"
        "    print('Serving one.', flush=True)\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        f"    pathlib.Path({str(stopped)!r}).touch()\n"
    )
    assert seconds_to_ready((sys.executable, "-c", code), tmp_path, {}) < 600
    assert stopped.exists()


def test_a_service_that_ends_before_it_serves_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended before it served"):
        seconds_to_ready((sys.executable, "-c", "print('loading')"), tmp_path, {})
