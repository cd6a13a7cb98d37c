"""Processes that prepare or measure end with the one that wants the result, however that dies.

What is remembered of a model's hash is a FIFO here: whoever prepares the model says so by opening
it, and then waits.
"""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.checkpoints.fingerprint import memo_of
from tests.tiny_models import write_tiny

SECONDS = 60.0
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: waiting}
spec:
  target: {model: {uri: "file://%s"}}
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes by pidfd")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model")


@pytest.fixture
def memo(model: Path, tmp_path: Path) -> Path:
    memo = memo_of(model / "model.safetensors", tmp_path / ".cache/outrider")
    memo.parent.mkdir(parents=True)
    os.mkfifo(memo)
    return memo


def start(*command: str, home: Path, held: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=held,
        env={**os.environ, "HOME": str(home)},
    )


@contextlib.contextmanager
def read_by_somebody(memo: Path) -> Iterator[None]:
    """Begins when somebody reads the memo, who then waits until this ends."""
    writing = os.open(memo, os.O_WRONLY)
    yield
    os.close(writing)


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, children) for found in (child, *below(child))]


def all_end(descriptors: list[int]) -> bool:
    ended = [bool(select.select([one], [], [], SECONDS)[0]) for one in descriptors]
    for one in descriptors:
        os.close(one)
    return all(ended)


@pytest.mark.parametrize("command", [("run", "--prompt", "x"), ("profile",)])
def test_a_preparation_ends_when_its_command_is_killed(
    model: Path, memo: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE % model)
    code = "from outrider.cli.app import main; main()"
    cli = start("-c", code, *command, "-f", str(file), home=tmp_path)
    with read_by_somebody(memo):
        preparing = [os.pidfd_open(pid) for pid in below(cli.pid)]
        assert preparing
        cli.kill()
        cli.wait(SECONDS)
        assert all_end(preparing)


def test_a_profile_and_what_it_measures_end_with_the_lifeline(
    model: Path, memo: Path, tmp_path: Path
) -> None:
    settings = WorkerSettings(
        role=Role.TARGET,
        name="measured",
        model=ModelSettings(uri=f"file://{model}"),
        cache=str(memo.parent.parent),
    )
    file = tmp_path / "settings.json"
    file.write_text(settings.to_json())
    reading, writing = os.pipe()
    options = ("--settings", str(file), "--parent-fd", str(reading))
    profile = start(
        "-P", "-m", "outrider.worker", "profile", *options, home=tmp_path, held=(reading,)
    )
    os.close(reading)
    with read_by_somebody(memo):
        measuring = [os.pidfd_open(pid) for pid in below(profile.pid)]
        assert measuring
        os.close(writing)
        assert all_end(measuring)
        profile.wait(SECONDS)
