"""A stage's process while it loads."""

import asyncio
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.errors import ModelError, StageLost, StageRefused
from outrider.worker.launch.load_stage import LoadedStage
from outrider.worker.launch.load_steps import LoadSteps
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.rows import Rows
from outrider.worker.parallel import watchdog
from outrider.worker.parallel.rank_spec import GROUP_LOST
from outrider.worker.pipeline.records import Floats, Ints
from outrider.worker.pipeline.wire.hello import StageFacts, StageIdentity
from outrider.worker.pipeline.wire.stage_client import StageClient
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.server import stage_node
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.stage_health import StageAnswer, answer_of
from outrider.worker.server.stage_node import StageNode
from tests.peer_folders import fill, name_of, new_authorities, peers_in
from tests.ports import free_port
from tests.unit.worker.pipeline.wire.pipeline_records import HIDDEN, LIMITS, begin, segment
from tests.unit.worker.pipeline.wire.stage_servers import REVISION, group, shared_loop

SECONDS = 60.0
"""Far more than anything here takes."""
SETTINGS = WorkerSettings(role=Role.TARGET, name="tiny", model=ModelSettings(uri="file:///tiny"))


def run(stop_at_once: bool) -> int:
    async def serve() -> int:
        stop = Shutdown()
        node = StageNode(SETTINGS, StagePlace(0, (f"127.0.0.1:{free_port()}",)), stop)
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

    def take(node: StageNode, loaded: object) -> None:
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


def test_a_stage_that_takes_long_to_load_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stage_node, "LATE_SECONDS", 0.05)
    may_end = threading.Event()
    said = re.compile(
        r"stage 0 of 1 is not ready: it waits for a test, for \d+ s, of which \d+\.\d s on a "
        r"processor, in wait \(threading\.py:\d+\) < wait \(.*\) < load \(test_stage_node\.py"
    )

    def load(settings: WorkerSettings, place: StagePlace, steps: LoadSteps) -> LoadedStage:
        steps.begin("waits for a test")
        may_end.wait(SECONDS)
        raise ModelError("it was never to load")

    async def refused() -> str:
        address = f"127.0.0.1:{free_port()}"
        node = StageNode(SETTINGS, StagePlace(0, (address,)), Shutdown(), load)
        serving = asyncio.create_task(node.run())
        client = StageClient(group(1), asyncio.get_running_loop(), LIMITS.vocabulary)
        try:
            async with asyncio.timeout(SECONDS):
                while not said.search(caplog.text):  # before, it may say that it starts
                    await asyncio.sleep(0.01)
            with pytest.raises(StageLost) as caught:
                await asyncio.wrap_future(client.begin(address, address))
            return str(caught.value)
        finally:
            may_end.set()
            with pytest.raises(ModelError, match="never to load"):
                await serving
            await node.close()

    assert asyncio.run(refused()) == "stage 0: it waits for a test"


def test_a_stage_beyond_loopback_takes_only_its_own_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authorities = new_authorities()
    for service in ("chat", "other"):
        fill(tmp_path / service, authorities, name_of(Role.TARGET, service))
    mine = peers_in(tmp_path / "chat")
    hostile = replace(peers_in(tmp_path / "other", "other"), target=mine.target)
    facts = StageFacts(0, LayerRange(0, 1, 1), "fp32", 8, 16, 200)
    identity = StageIdentity(REVISION, 1, facts, HIDDEN, LIMITS.vocabulary)
    layers: Any = HangingLayers()
    loaded = LoadedStage(identity, LIMITS, layers, LogitsProcessors(LIMITS.vocabulary), ranks=None)
    monkeypatch.setattr(StageNode, "_load", lambda _: loaded)

    async def begun() -> list[str]:  # what groups come to that strangers and its own leader begin
        address, stop = f"0.0.0.0:{free_port()}", Shutdown()
        settings = replace(SETTINGS, peers=mine)
        node = StageNode(settings, StagePlace(0, (address,)), stop)
        serving = asyncio.create_task(node.run())
        while await answer_of(address, SECONDS, mine) is not StageAnswer.SERVES:
            await asyncio.sleep(0.01)
        said = []
        for peers in (hostile, None, mine):
            loop = asyncio.get_running_loop()
            client = StageClient(group(1), loop, LIMITS.vocabulary, peers=peers)
            try:
                await asyncio.wrap_future(client.begin(address, address))
                said.append("up")
            except (StageLost, StageRefused) as error:
                said.append(f"{type(error).__name__}: {error}")
            client.end("the test ends it")
        stop.request(0.0)
        await serving
        await node.close()
        return said

    theirs, plain, own = asyncio.run(begun())
    assert theirs.startswith("StageRefused: ")
    assert "target.other.default.outrider" in theirs
    assert plain.startswith("StageLost: ")
    assert own == "up"


class HangingLayers:
    """Layers whose passes do not end until the test lets them."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        self.may_end.wait(SECONDS)
        return np.zeros((rows.count, HIDDEN), np.float32)

    def move(self, sources: Ints, destinations: Ints) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_pass_that_hangs_ends_group_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MIN_SECONDS", 0.2)
    monkeypatch.setattr(watchdog, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(stage_node, "THREAD_SECONDS", 0.05)
    facts = StageFacts(0, LayerRange(0, 1, 1), "fp32", 8, 16, 200)
    identity = StageIdentity(REVISION, 1, facts, HIDDEN, LIMITS.vocabulary)
    layers: Any = HangingLayers()
    processors = LogitsProcessors(LIMITS.vocabulary)
    loaded = LoadedStage(identity, LIMITS, layers, processors, ranks=None)
    monkeypatch.setattr(StageNode, "_load", lambda _: loaded)
    address = f"127.0.0.1:{free_port()}"
    ready = threading.Event()

    async def serve() -> int:
        node = StageNode(SETTINGS, StagePlace(0, (address,)), Shutdown())
        monkeypatch.setattr(node.health, "set_serving", shown)
        try:
            return await node.run()
        finally:
            await node.close()

    async def shown(serving: bool) -> None:
        ready.set()

    serving = asyncio.run_coroutine_threadsafe(serve(), shared_loop())
    assert ready.wait(SECONDS)
    client = StageClient(group(1), shared_loop(), LIMITS.vocabulary)
    client.connect(address, address)
    client.send(begin())
    client.send(segment(hidden=None))
    with pytest.raises(StageLost, match=r"stage 0: it ends: a pass has not ended within 0 s"):
        client.receive(SECONDS)
    assert serving.result(SECONDS) == GROUP_LOST
    layers.may_end.set()
    client.close()


def test_a_stage_that_is_to_stop_stays_while_its_leader_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader is told at the same time, and finishes its answers."""
    group, told = SimpleNamespace(links="to the leader"), asyncio.Event()

    def take(node: StageNode, loaded: object) -> None:
        monkeypatch.setattr(node, "_loop", group)
        node._stop.request(SECONDS)
        asyncio.get_running_loop().call_soon(told.set)

    async def serve() -> None:
        node = StageNode(SETTINGS, StagePlace(0, (f"127.0.0.1:{free_port()}",)), Shutdown())
        serving = asyncio.create_task(node.run())
        await told.wait()
        while not node.control.draining:
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)  # it has looked again
        assert not serving.done()
        group.links = None
        assert await serving == 0
        node._loop = None
        await node.close()

    monkeypatch.setattr(StageNode, "_load", lambda _: object())
    monkeypatch.setattr(StageNode, "_take_groups", take)
    asyncio.run(serve())
