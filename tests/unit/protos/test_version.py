from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from outrider.contract import version as module


def test_an_installed_package_has_the_version_of_its_metadata(tmp_path: Path) -> None:
    assert module.version(tmp_path / "pyproject.toml") == version("outrider")


def test_a_source_tree_has_the_version_of_its_project_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", absent)
    file = tmp_path / "pyproject.toml"
    with pytest.raises(PackageNotFoundError):
        module.version(file)
    file.write_text('[project]\nname = "outrider"\nversion = "3.2.1"\n', encoding="utf-8")
    assert module.version(file) == "3.2.1"
    assert module.version() == version("outrider")
