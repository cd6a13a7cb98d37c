"""A stage's process while it loads."""

import asyncio
import threading

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.errors import ModelError
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.stage_node import StageNode

SECONDS = 60.0
"""Far more than anything here takes."""
SETTINGS = WorkerSettings(role=Role.TARGET, name="tiny", model=ModelSettings(uri="file:///tiny"))


def run(stop_at_once: bool) -> int:
    async def serve() -> int:
        stop = Shutdown()
        node = StageNode(SETTINGS, StagePlace(0, ("127.0.0.1:1",)), stop)
        if stop_at_once:
            stop.request(0.0)
        try:
            return await node.run()
        finally:
            await node.close()

    return asyncio.run(serve())


def test_a_stage_that_loads_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    enough, loaded = threading.Event(), threading.Event()

    def load(_: StageNode) -> None:
        enough.wait(SECONDS)
        loaded.set()

    monkeypatch.setattr(StageNode, "_load", load)
    assert run(stop_at_once=True) == 0
    assert not loaded.is_set(), "the end of the process waits for the model"
    enough.set()
    assert loaded.wait(SECONDS)


def test_groups_are_taken_with_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    model, taken = object(), []

    async def take(node: StageNode, loaded: object) -> None:
        taken.append(loaded)
        node.control.on_drain(0.0)

    monkeypatch.setattr(StageNode, "_load", lambda _: model)
    monkeypatch.setattr(StageNode, "_take_groups", take)
    assert run(stop_at_once=False) == 0
    assert taken == [model]


def test_a_model_that_cannot_be_loaded_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: StageNode) -> None:
        raise ModelError("no such model")

    monkeypatch.setattr(StageNode, "_load", load)
    with pytest.raises(ModelError, match="no such model"):
        run(stop_at_once=False)
