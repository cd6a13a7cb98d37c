"""A replica over two machines, here two trees of processes: one leads, one only runs ranks."""

import contextlib
import dataclasses
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.client import Unavailable
from outrider.contract import process
from outrider.contract.settings import Role, WorkerSettings
from tests.process import workers
from tests.process.test_lost_ranks import LONG, ranks_of
from tests.process.workers import END_SECONDS, START_SECONDS, Worker, answer, wait_until
from tests.tiny_models import write_tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds ranks in /proc")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("machines")
    write_tiny(base / "target", layers=2, max_position_embeddings=2048)
    return base


def settings_of(base: Path, ranks: int) -> WorkerSettings:
    settings = workers.settings_for(Role.TARGET, base / "target", base / "cache")
    return dataclasses.replace(settings, tensor_parallel=ranks, max_context=2048)


@pytest.fixture
def machines(base: Path) -> Iterator[tuple[Worker, Worker]]:
    """Two machines of two ranks each; the one that only follows is started first."""
    try:
        socket.create_server(("", process.RENDEZVOUS_PORT)).close()
    except OSError:
        pytest.skip(f"port {process.RENDEZVOUS_PORT} is taken")
    settings = settings_of(base, 4)
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv(process.ENV_NODES, "2")
        environment.setenv(process.ENV_LEADER, "127.0.0.1")
        environment.setenv(process.ENV_NODE, "1")
        second = stack.enter_context(workers.started(settings_of(base, 4), base, ready=False))
        environment.setenv(process.ENV_NODE, "0")
        first = stack.enter_context(workers.started(settings, base))
        environment.undo()
        yield first, second


def says(worker: Worker, path: str) -> int:
    """HTTP status."""
    try:
        with urllib.request.urlopen(f"{worker.url}{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_two_machines_answer_as_one_and_end_as_one(
    base: Path, machines: tuple[Worker, Worker]
) -> None:
    first, second = machines
    assert [len(ranks_of(machine.process.pid)) for machine in machines] == [1, 2]
    wait_until(lambda: says(second, "/readyz") == 200, START_SECONDS, "its ranks are ready")
    assert says(second, "/healthz") == 200
    given = answer(first, 60).tokens
    with pytest.raises(Unavailable, match="engine"):
        answer(first, LONG, {20: lambda: os.kill(ranks_of(second.process.pid)[0], signal.SIGKILL)})
    assert [machine.process.wait(END_SECONDS) for machine in machines] == [1, 1]
    with workers.started(settings_of(base, 1), base) as alone:
        assert answer(alone, 60).tokens == given


def test_a_machine_whose_leader_is_gone_ends(machines: tuple[Worker, Worker]) -> None:
    first, second = machines
    first.kill_all()
    assert second.process.wait(END_SECONDS) == 1
