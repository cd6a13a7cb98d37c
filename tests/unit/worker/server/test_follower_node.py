"""A machine whose ranks follow a leader on another one, at its end."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.parallel.placement import RankPlacement
from outrider.worker.server.follower_node import FollowerNode
from outrider.worker.server.shutdown import Shutdown

SECONDS = 60.0
"""Far more than anything here takes."""
SETTINGS = WorkerSettings(role=Role.TARGET, name="tiny", model=ModelSettings(uri="file:///tiny"))


class Ranks:
    """Ranks that are ready; counts how often somebody looks."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def ready(self) -> bool:
        self.looks += 1
        return True


def prepared(settings: WorkerSettings) -> Any:
    return SimpleNamespace(own=None)


def test_ranks_that_are_to_stop_stay_while_their_leader_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader is told at the same time, and finishes its answers."""

    ranks = Ranks()

    def start(node: FollowerNode, own: object) -> None:
        monkeypatch.setattr(node, "_followers", ranks)

    async def serve() -> None:
        stop = Shutdown()
        node = FollowerNode(SETTINGS, RankPlacement.of({}), prepared)
        running = asyncio.create_task(node.run(stop))
        while not node.ready:
            await asyncio.sleep(0)
        stop.request(SECONDS)
        before = ranks.looks
        while ranks.looks < before + 2 and not running.done():
            await asyncio.sleep(0)
        assert not running.done()
        node._ended("the leader is gone")
        assert await running == 0

    monkeypatch.setattr(FollowerNode, "_start", start)
    asyncio.run(serve())
