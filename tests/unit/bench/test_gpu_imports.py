"""Imports of what runs on a GPU, against the packages of a plain GPU environment."""

from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.device import STAGES
from bench.gpu.import_closure import ROOT, imported

LIST = ROOT / "bench" / "gpu" / "environment.txt"
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
