"""`make images` finds a builder and gives it both Dockerfiles. A stand-in builds nothing."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "make", "dirname", "sed", "git")
BUILDER = '#!/bin/sh\nprintf "%s " "$(basename "$0")" "$@"; echo\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH folder with nothing but what a shell script needs."""
    for tool in (*TOOLS, "basename"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def make(path: Path, *variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": str(path)}
    command = ["make", "-s", "-C", str(ROOT), "images", *variables]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def put(path: Path, name: str) -> None:
    (path / name).write_text(BUILDER)
    (path / name).chmod(0o755)


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
def test_both_images_are_built_with_what_is_there(path: Path, builder: str) -> None:
    put(path, builder)
    done = make(path, "REGISTRY=example.org/team/", "DEVICE=cuda")
    assert (done.returncode, done.stderr) == (0, "")
    operator, worker = (line.split() for line in done.stdout.splitlines())
    head = [builder, "build", "-f", "Dockerfile.operator", "-t"]
    assert operator[:6] == [*head, f"example.org/team/outrider-operator:{version()}"]
    assert operator[-1] == worker[-1] == "."
    assert f"VERSION={version()}" in operator
    assert "EXTRA=worker-torch" in worker
    assert any(word.startswith("IMAGE_BASE=nvidia/cuda:") for word in worker)


def test_a_kind_cluster_gets_both_images(path: Path) -> None:
    put(path, "docker")
    put(path, "kind")
    done = make(path, "KIND=trial", "BASE=localhost/base")
    assert (done.returncode, done.stderr) == (0, "")
    operator, worker, load = (line.split() for line in done.stdout.splitlines())
    assert "BASE=localhost/base" in operator
    assert {"BASE=localhost/base", "IMAGE_BASE=localhost/base", "EXTRA=worker"} < set(worker)
    names = [f"outrider-{part}:{version()}" for part in ("operator", "worker")]
    assert load == ["kind", "load", "docker-image", "--name", "trial", *names]


def test_a_kind_cluster_without_kind_is_refused_before_anything_is_built(path: Path) -> None:
    put(path, "docker")
    done = make(path, "KIND=trial")
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "KIND=trial: kind is not on PATH" in done.stderr


def test_where_nothing_can_build_one_sentence_says_so(path: Path) -> None:
    done = make(path)
    assert done.returncode != 0
    assert "images: none of docker, podman and buildah is on PATH" in done.stderr


def test_an_unknown_device_is_refused_before_anything_is_built(path: Path) -> None:
    put(path, "docker")
    done = make(path, "DEVICE=tpu")
    assert done.returncode != 0
    assert "DEVICE: 'tpu' is not allowed; allowed: cpu, cuda" in done.stderr
    assert done.stdout == ""


def test_a_build_that_fails_is_an_error(path: Path) -> None:
    put(path, "docker")
    (path / "docker").write_text("#!/bin/sh\nexit 3\n")
    assert make(path).returncode != 0
