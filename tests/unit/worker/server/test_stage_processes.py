"""Stages as processes of their target's worker: their ports, and those that do not answer."""

import asyncio
import socket
import sys
from pathlib import Path

import grpc
import pytest

from outrider.contract.stages import StagePlace
from outrider.worker.host.keep import Keeper, Rhythm
from outrider.worker.server import stage_processes
from outrider.worker.server.readiness import HealthService
from outrider.worker.server.stage_processes import (
    StageProcesses,
    is_silent,
    places_at,
    reserved_ports,
)

SECONDS = 60.0
"""Far more than anything here takes."""
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


async def serve(address: str, reuse: int) -> grpc.aio.Server:
    server = grpc.aio.server(options=(("grpc.so_reuseport", reuse),))
    HealthService().register(server)
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
            return not await is_silent(place.address, SECONDS)
        finally:
            await server.stop(None)
            port.close()

    assert asyncio.run(served())


def test_what_does_not_listen_yet_is_not_silent() -> None:
    (port,) = reserved_ports(1)
    address = places_at([port])[0].address
    assert not asyncio.run(is_silent(address, SECONDS))
    port.listen()
    assert asyncio.run(is_silent(address, 0.1))
    port.close()


def test_a_silent_stage_is_killed_and_starts_again_while_the_stages_are_no_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stage_processes, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(stage_processes, "QUESTION_SECONDS", 0.01)
    lives = tmp_path / "lives"

    async def three_lives() -> None:
        (port,) = ports = reserved_ports(1)
        (place,) = places_at(ports)
        number = str(port.getsockname()[1])
        command = (sys.executable, "-c", SILENT, number, str(lives))
        keeper = Keeper(command, None, Rhythm(first=0.01, last=0.01))
        stages = StageProcesses({place: keeper}, ports)
        stages.follow(up=False)
        async with asyncio.timeout(SECONDS):
            while not lives.exists() or len(lives.read_text().split()) < 3:
                await asyncio.sleep(0.01)
        await stages.close()

    asyncio.run(three_lives())
