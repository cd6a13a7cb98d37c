"""Work that a worker begins before it serves, and its end."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.errors import ModelError, Stopping
from outrider.worker.parallel.placement import RankPlacement
from outrider.worker.server.build import Ports, build_worker
from outrider.worker.server.daemon_work import unless_stopped
from outrider.worker.server.follower_node import FollowerNode
from outrider.worker.server.shutdown import Shutdown

SECONDS = 60.0
"""Far more than anything here takes."""
SETTINGS = WorkerSettings(role=Role.TARGET, name="tiny", model=ModelSettings(uri="file:///tiny"))


def test_what_work_returns_or_raises_is_passed_on() -> None:
    def fail() -> None:
        raise ModelError("no such model")

    async def both() -> int:
        stop = asyncio.Event()
        with pytest.raises(ModelError, match="no such model"):
            await unless_stopped(fail, "failing", stop)
        return await unless_stopped(lambda: 3, "counting", stop)

    assert asyncio.run(both()) == 3


class SlowModel:
    """A model that is prepared until the test has seen its worker stop."""

    def __init__(self, stop: Shutdown) -> None:
        self.enough, self.prepared = threading.Event(), threading.Event()
        self._stop, self._loop = stop, asyncio.get_running_loop()

    def __call__(self, settings: WorkerSettings) -> None:
        self._loop.call_soon_threadsafe(self._stop.request, 0.0)
        self.enough.wait(SECONDS)
        self.prepared.set()


async def as_target(stop: Shutdown, scratch: Path, prepare: Any) -> None:
    ports: Any = Ports(None, None, None, None)  # type: ignore[arg-type]
    await build_worker(SETTINGS, scratch, ports, stop, prepare)


async def as_follower(stop: Shutdown, scratch: Path, prepare: Any) -> None:
    await FollowerNode(SETTINGS, RankPlacement.of({}), prepare).run(stop)


@pytest.mark.parametrize("start", [as_target, as_follower])
def test_a_worker_whose_model_is_prepared_stops_at_once(tmp_path: Path, start: Any) -> None:
    models: list[SlowModel] = []

    async def stopped() -> None:
        stop = Shutdown()
        models.append(SlowModel(stop))
        with pytest.raises(Stopping):
            await start(stop, tmp_path, models[0])

    asyncio.run(stopped())
    assert not models[0].prepared.is_set(), "the end of the process waits for the model"
    models[0].enough.set()
    assert models[0].prepared.wait(SECONDS)
