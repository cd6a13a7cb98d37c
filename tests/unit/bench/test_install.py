"""Sizes of `bench.install`, and its sets."""

import tomllib
from pathlib import Path

from bench.install import ROOT, SETS, CommandCost, Install, measured


def test_every_file_counts_but_compiled_bytecode(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "one").mkdir(parents=True)
    (packages / "one-1.0.dist-info").mkdir()
    (packages / "one" / "code.py").write_bytes(bytes(1_500_000))
    (packages / "one" / "code.pyc").write_bytes(bytes(1_500_000))
    (packages / "one-1.0.dist-info" / "RECORD").write_bytes(bytes(500_000))
    took = CommandCost(2.5, 1.0)
    assert measured(tmp_path, took) == Install(2.0, 1, took)


def test_every_set_can_be_installed() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = {
        "--group": tables["dependency-groups"],
        "--extra": tables["project"]["optional-dependencies"],
    }
    assert all(name in known[kind] for kind, name in SETS.values())
