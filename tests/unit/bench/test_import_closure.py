"""Chains of imports, imports that need not succeed, and what everyday tests may import."""

from pathlib import Path

import pytest

from bench.gpu.import_closure import ROOT, imported
from tests import parts


def test_everyday_tests_import_no_torch() -> None:
    files = [ROOT / file for file in parts.test_files()[parts.EVERYDAY]]
    assert len(files) > 100
    assert {"torch", "triton"}.isdisjoint(imported(*files))


def written(folder: Path, **modules: str) -> Path:
    """Write modules by their path, `__` for a slash; return the folder."""
    for name, text in modules.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def test_a_chain_of_imports_is_named_from_the_root_to_the_module(tmp_path: Path) -> None:
    tree = written(
        tmp_path,
        a="import json, operator\nfrom b import choose",
        b="from llguidance import LLMatcher\nimport google.protobuf.message",
    )
    assert imported(Path("a.py"), checkout=tree) == {
        "llguidance": ("a", "b", "llguidance"),
        "google": ("a", "b", "google"),
    }


def test_the_shortest_of_several_chains_is_named(tmp_path: Path) -> None:
    tree = written(tmp_path, a="import b, c, d", b="import e", c="import torch", d="import e")
    written(tree, e="import a, torch")
    assert imported(Path("a.py"), checkout=tree) == {"torch": ("a", "c", "torch")}


def test_the_root_that_is_nearest_begins_the_chain(tmp_path: Path) -> None:
    tree = written(tmp_path, a="import b", b="import torch", c="import b, torch")
    chains = imported(Path("a.py"), Path("c.py"), checkout=tree)
    assert chains == {"torch": ("c", "torch")}


def test_the_packages_of_a_module_are_imported_before_it(tmp_path: Path) -> None:
    tree = written(tmp_path, a="from outrider.worker import run")
    written(tree / "worker" / "outrider" / "worker", run="from . import walk", walk="import numba")
    (tree / "worker" / "outrider" / "worker" / "__init__.py").write_text("import numpy")
    package, walk = "outrider.worker", "outrider.worker.walk"
    assert imported(Path("a.py"), checkout=tree) == {
        "numpy": ("a", package, "numpy"),
        "numba": ("a", "outrider.worker.run", walk, "numba"),
    }
    alone = imported(Path("worker/outrider/worker/walk.py"), checkout=tree)
    assert alone == {"numba": (walk, "numba"), "numpy": (walk, package, "numpy")}


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.py"):
        imported(Path("a.py"), checkout=tmp_path)


def test_a_folder_of_tests_is_imported_with_the_conftests_above_it(tmp_path: Path) -> None:
    tree = written(tmp_path, tests__conftest="import pytest", tests__gpu__test_a="import torch")
    written(tree, tests__kube__conftest="import kopf")
    assert imported(Path("tests/gpu"), checkout=tree) == {
        "pytest": ("tests.conftest", "pytest"),
        "torch": ("tests.gpu.test_a", "torch"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "def compile():\n    import llguidance",
        "class Grammar:\n    async def compile(self):\n        import llguidance",
        "if TYPE_CHECKING:\n    import llguidance",
        "if typing.TYPE_CHECKING:\n    import llguidance",
        "if not TYPE_CHECKING:\n    pass\nelse:\n    import llguidance",
        "try:\n    import llguidance\nexcept ImportError:\n    llguidance = None",
        "try:\n    import llguidance\nexcept (OSError, ModuleNotFoundError) as error:\n    pass",
    ],
)
def test_an_import_that_need_not_succeed_does_not_count(text: str, tmp_path: Path) -> None:
    assert imported(Path("a.py"), checkout=written(tmp_path, a=text)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "class Grammar:\n    import llguidance",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import llguidance",
        "if not TYPE_CHECKING:\n    import llguidance",
        "if find_spec('llguidance'):\n    import llguidance",
        "if __name__ == '__main__':\n    import llguidance",
        "with warnings.catch_warnings():\n    import llguidance",
        "try:\n    import llguidance\nexcept OSError:\n    pass",
        "match system:\n    case 'Linux':\n        import llguidance",
    ],
)
def test_an_import_that_runs_counts_whatever_it_stands_in(text: str, tmp_path: Path) -> None:
    assert imported(Path("a.py"), checkout=written(tmp_path, a=text)).keys() == {"llguidance"}
