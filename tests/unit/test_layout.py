"""Guards of the PEP 420 namespace: one `__init__.py` in the wrong place breaks Python itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORTIONS = ("operator", "worker", "kernels", "protos", "cli", "lab")


def test_no_portion_makes_the_namespace_a_package() -> None:
    for portion in PORTIONS:
        assert (ROOT / portion / "outrider").is_dir()
        assert not (ROOT / portion / "__init__.py").exists()
        assert not (ROOT / portion / "outrider" / "__init__.py").exists()


def test_no_folder_of_tests_is_a_package() -> None:
    assert [str(p) for p in (ROOT / "tests").rglob("__init__.py")] == []


def test_operator_is_the_standard_library_seen_from_the_root() -> None:
    code = "import operator; print(operator.__file__)"
    for safe_path in (["-P"], []):
        command = [sys.executable, *safe_path, "-c", code]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert not Path(run.stdout.strip()).is_relative_to(ROOT / "operator")


def test_every_portion_is_built_checked_and_linted() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = [f"{portion}/outrider" for portion in PORTIONS]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == list(PORTIONS)
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == packages
    assert tool["mypy"]["mypy_path"] == list(PORTIONS)
    modules = {
        f"outrider.{module.name}"
        for package in packages
        for module in (ROOT / package).iterdir()
        if (module / "__init__.py").exists()
    }
    assert set(tool["mypy"]["packages"]) == modules
    assert set(tool["importlinter"]["root_packages"]) == modules
