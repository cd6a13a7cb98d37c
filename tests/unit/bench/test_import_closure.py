"""Imports of what runs on a GPU, against the packages of a plain GPU environment."""

from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.device import STAGES
from bench.import_closure import ROOT, imported

LIST = ROOT / "bench" / "gpu_environment.txt"
PLATFORM = {
    "platform_machine": "x86_64", "platform_system": "Linux", "sys_platform": "linux",
    "python_version": "3.12", "python_full_version": "3.12.3",
}  # fmt: skip
"""Markers of the plain GPU environment."""
ROOTS = [root for stage in STAGES for command in stage.commands for root in command.roots]
ON_A_GPU = ["bench/device.py", *dict.fromkeys(ROOTS)]


def required(name: str, extra: str) -> list[Requirement]:
    """Return what a package requires there, by its metadata here; nothing if it is not here."""
    try:
        requirements = [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:
        return []
    markers = {**PLATFORM, "extra": extra}
    return [one for one in requirements if one.marker is None or one.marker.evaluate(markers)]


def packages(lines: list[str]) -> set[str]:
    """Return the packages of the list and what they require, but none that it calls absent."""
    absent = {str(canonicalize_name(line[3:])) for line in lines if line.startswith("#! ")}
    seen = {(name, "") for name in absent}
    waiting = [Requirement(line) for line in lines if not line.startswith("#")]
    while waiting:
        requirement = waiting.pop()
        name = str(canonicalize_name(requirement.name))
        for key in {(name, extra) for extra in ("", *requirement.extras)} - seen:
            seen.add(key)
            waiting += required(*key)
    return {name for name, _ in seen} - absent


@pytest.fixture(scope="module")
def modules() -> set[str]:
    """Top-level modules of the plain GPU environment."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    there = packages(lines)
    found = {
        module
        for module, names in packages_distributions().items()
        if there.intersection(map(canonicalize_name, names))
    }
    return found | {"triton"}  # not installed here on every machine


@pytest.mark.parametrize("root", ON_A_GPU)
def test_what_runs_on_a_gpu_imports_nothing_that_its_environment_lacks(
    root: str, modules: set[str]
) -> None:
    chains = imported(Path(root))
    outside = [" -> ".join(chains[name]) for name in sorted(chains.keys() - modules)]
    assert not outside, f"not in {LIST.relative_to(ROOT)}:\n" + "\n".join(outside)


def test_benchmarks_and_tests_of_a_device_are_looked_at() -> None:
    assert {"bench/decode_step.py", "tests/unit/worker/gpu", "tests/gpu"} <= {*ROOTS}


def test_the_environment_is_the_list_and_what_it_requires(modules: set[str]) -> None:
    assert modules >= {"grpc", "huggingface_hub", "llvmlite", "packaging", "yaml"}
    needed_by_the_project_alone = {"gguf", "grpc_health", "kopf", "llguidance", "starlette"}
    assert modules.isdisjoint(needed_by_the_project_alone | {"outrider", "pydantic"})


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
