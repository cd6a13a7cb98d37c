"""Stages as processes of their target's worker: their ports, and those that do not answer."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from outrider.contract.settings import ModelSettings, PipelineSettings, Role, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.host.keep import Keeper, KeeperTimes
from outrider.worker.server.readiness import HealthService
from outrider.worker.server.stage_health import HealthQuestions, StageAnswer, StageHealth, answer_of
from outrider.worker.server.stage_processes import (
    StageProcesses,
    places_at,
    reserved_ports,
    stage_settings,
)

SECONDS = 60.0
"""Far more than anything here takes."""
TARGET = WorkerSettings(
    role=Role.TARGET,
    name="m",
    model=ModelSettings(uri="file:///m"),
    threads=2,
    pipeline=PipelineSettings(stages=3),
)
OFTEN = HealthQuestions(answer=0.1, loading_answer=0.1, pause=0.01)
SILENT = """
import pathlib, signal, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
with open(sys.argv[2], "a") as lives:
    lives.write("life ")
signal.pause()
"""
"""A stage that listens, and neither answers nor ends."""


STOPPED = """
import os, signal, sys
with open(sys.argv[2], "a") as lives:
    lives.write("life ")
os.kill(os.getpid(), signal.SIGSTOP)
"""
"""A stage that is stopped before it listens."""


async def serve(address: str, reuse: int, serving: bool = True) -> grpc.aio.Server:
    server = grpc.aio.server(options=(("grpc.so_reuseport", reuse),))
    health = HealthService()
    await health.set_serving(serving)
    health.register(server)
    server.add_insecure_port(address)
    await server.start()
    return server


def test_a_reserved_port_is_its_stages_alone() -> None:
    async def served() -> bool:
        (port,) = reserved_ports(1)
        (place,) = places_at([port])
        assert StagePlace.of(place.variables(), 1) == place
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(port.getsockname())
        with pytest.raises(RuntimeError):
            await serve(place.address, reuse=0)
        server = await serve(place.address, reuse=int(place.reserved))
        try:
            return await answer_of(place.address, SECONDS) is StageAnswer.SERVES
        finally:
            await server.stop(None)
            port.close()

    assert asyncio.run(served())


@pytest.mark.parametrize(
    ("processors", "each"),
    [
        ((0, 1, 2, 3, 4, 5), [(0, 1), (2, 3), (4, 5)]),
        ((0, 1, 2, 3), [(0, 1, 2, 3)] * 3),
    ],
    ids=["enough for all", "too few"],
)
def test_stages_keep_to_processors_of_their_own_where_there_are_enough(
    processors: tuple[int, ...], each: list[tuple[int, ...]]
) -> None:
    settings = replace(TARGET, processors=processors)
    places = [StagePlace(index, ("one:1", "two:2", "three:3")) for index in range(3)]
    assert [stage_settings(settings, place).processors for place in places] == each


def test_what_does_not_listen_yet_is_not_silent() -> None:
    (port,) = reserved_ports(1)
    address = places_at([port])[0].address
    assert asyncio.run(answer_of(address, SECONDS)) is StageAnswer.NONE_LISTENS
    port.listen()
    assert asyncio.run(answer_of(address, 0.1)) is StageAnswer.SILENCE
    port.close()


def test_a_stage_that_answers_and_does_not_serve_loads() -> None:
    async def asked() -> StageAnswer:
        (port,) = reserved_ports(1)
        (place,) = places_at([port])
        server = await serve(place.address, reuse=1, serving=False)
        try:
            return await answer_of(place.address, SECONDS)
        finally:
            await server.stop(None)
            port.close()

    assert asyncio.run(asked()) is StageAnswer.LOADS


def test_no_proxy_answers_for_a_stage_that_does_not_listen_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = reserved_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as proxy:  # listens, and never answers
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        address = places_at([port])[0].address
        assert asyncio.run(answer_of(address, 1.0)) is StageAnswer.NONE_LISTENS
    port.close()


@pytest.mark.parametrize("program", [SILENT, STOPPED])
def test_a_stage_that_is_stuck_is_killed_and_starts_again_while_the_stages_are_no_group(
    tmp_path: Path, program: str
) -> None:
    lives = tmp_path / "lives"

    async def three_lives() -> None:
        (port,) = ports = reserved_ports(1)
        (place,) = places_at(ports)
        number = str(port.getsockname()[1])
        command = (sys.executable, "-c", program, number, str(lives))
        keeper = Keeper(command, None, KeeperTimes(first=0.01, last=0.01, grace=0.1))
        stages = StageProcesses({place: keeper}, ports, OFTEN)
        async with asyncio.timeout(SECONDS):
            while not lives.exists() or len(lives.read_text().split()) < 3:
                await asyncio.sleep(0.01)
        await stages.close()

    asyncio.run(three_lives())


def test_a_stage_for_which_there_was_no_process_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program, life = tmp_path / "stage", tmp_path / "life"

    async def at_last() -> None:
        ports = reserved_ports(1)
        (place,) = places_at(ports)
        keeper = Keeper((str(program),), None, KeeperTimes(first=0.01, last=0.01, grace=0.1))
        stages = StageProcesses({place: keeper}, ports, OFTEN)
        async with asyncio.timeout(SECONDS):
            while caplog.text.count("cannot be started") < 2:
                await asyncio.sleep(0.01)
            made = tmp_path / "made"
            made.write_text(f"#!/bin/sh\necho begun > {life}\nexec sleep 1000\n")
            made.chmod(0o700)
            made.rename(program)
            while not life.exists():
                await asyncio.sleep(0.01)
        assert not stages.failed.done()
        await stages.close()

    asyncio.run(at_last())


class NotOurs:
    """A process that we may not end."""

    pid = 1
    returncode = None

    def __init__(self) -> None:
        self.asked = 0

    def kill(self) -> None:
        self.asked += 1
        raise PermissionError("not ours")


class KeeperOfOthers(Keeper):
    """A keeper whose process is not ours."""

    async def keep(self, after: Callable[[int], None]) -> int:
        self.process: Any = NotOurs()
        await self.stop.wait()
        return 0


def test_a_stage_that_cannot_be_ended_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def asked_again() -> None:
        (port,) = ports = reserved_ports(1)
        (place,) = places_at(ports)
        port.listen()
        keeper = KeeperOfOthers((), None, name="stage 0")
        stages = StageProcesses({place: keeper}, ports, OFTEN)
        stages.follow(up=False)
        async with asyncio.timeout(SECONDS):
            while keeper.process is None or keeper.process.asked < 2:
                await asyncio.sleep(0.01)
        await stages.close()

    asyncio.run(asked_again())
    assert "not ours" in caplog.text


def test_a_stage_that_takes_long_is_spoken_of_again_and_again() -> None:
    now = [0.0]
    own = StageHealth(os.getpid(), HealthQuestions(late=60), lambda: now[0])
    assert own.late() == ""
    now[0] = 60.0
    words = own.late()
    assert words.startswith("is not ready 60 s after its start: it does not listen yet; process")
    assert "is in state" in words
    assert "s of a processor" in words
    assert own.late() == ""
    own.answer = StageAnswer.LOADS
    now[0] = 120.0
    assert "120 s after its start: it loads" in own.late()
    own.answer = StageAnswer.SERVES
    now[0] = 180.0
    assert own.late() == ""
