"""Stages of a pipelined target that run on its leader's machine, as processes of its worker.

Each is started again whenever it ends, unless it never ran. While the stages do not run as one,
those that are stopped or stuck are ended, and those that take long are spoken of. Leaves what a
stage does to `stage_node`, how it is to `stage_health`, the group of all stages to the engine.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from outrider.contract.files import write_text
from outrider.contract.settings import PeerSettings, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.host.keep import CANNOT_START, Keeper, KeeperTimes
from outrider.worker.host.peers import beyond_loopback
from outrider.worker.server.stage_health import HealthQuestions, StageHealth

logger = logging.getLogger(__name__)

ANY_PORT = "127.0.0.1:0"
RHYTHM = KeeperTimes(first=0.1, last=10.0, healthy=30.0, grace=2.0)
QUESTIONS = HealthQuestions()


class StageProcesses:
    """The stages that this worker starts."""

    def __init__(
        self,
        keepers: Mapping[StagePlace, Keeper],
        ports: Sequence[socket.socket] = (),
        questions: HealthQuestions = QUESTIONS,
        peers: PeerSettings | None = None,
    ) -> None:
        """`keepers`: the leader's own stage comes first; `ports` are closed at the end; `peers`:
        certificates that the stages are known by."""
        self.place = next(iter(keepers))
        """Of the leader's own stage."""
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Exit status of one that could not start, before all have run as one."""
        self._were_up = False
        """True once they have; those that end from now on only start again."""
        self._ports = ports
        self._questions = questions
        self._peers = peers
        self._down = asyncio.Event()
        self._down.set()  # until they are up
        self._stop = [keeper.stop for keeper in keepers.values()]
        self._kept = [asyncio.create_task(one.keep(self._ended)) for one in keepers.values()]
        self._asking = [asyncio.create_task(self._ask(*one)) for one in keepers.items()]

    @classmethod
    def start(cls, settings: WorkerSettings, scratch: Path, environ: Mapping[str, str]) -> Self:
        """Start the first stage where the environment names all of them, else every stage.

        Raises `SettingsError`.
        """
        count = settings.pipeline.stages
        place = StagePlace.of(environ, count)
        ports = reserved_ports(0 if place is not None else count)
        places = [place] if place is not None else places_at(ports)
        keepers = {one: keeper_of(settings, one, scratch, environ) for one in places}
        return cls(keepers, ports, QUESTIONS, beyond_loopback(settings.peers, places[0].address))

    def follow(self, up: bool) -> None:
        """Hear whether the stages run as one."""
        if up:
            self._were_up = True
            self._down.clear()
        else:
            self._down.set()

    async def close(self) -> None:
        """End all of them."""
        for asking in self._asking:
            asking.cancel()
        for stop in self._stop:
            stop.set()
        await asyncio.gather(*self._kept)
        for port in self._ports:
            port.close()

    def _ended(self, status: int) -> None:
        """Give up where a stage refuses to start: it would again. One for which there was no
        process just now has refused nothing."""
        if status > 0 and status != CANNOT_START and not self._were_up and not self.failed.done():
            self.failed.set_result(status)

    async def _ask(self, place: StagePlace, keeper: Keeper) -> None:
        """Look at each life of a stage now and then, while the stages do not run as one."""
        health: StageHealth | None = None
        while True:
            await self._down.wait()
            process = keeper.process
            if process is not None and process.returncode is None:
                if health is None or health.process != process.pid:
                    health = StageHealth(process.pid, self._questions, peers=self._peers)
                await end_if_stuck(process, health, loopback(place), keeper.name)
            await asyncio.sleep(self._questions.pause)


async def end_if_stuck(process: Process, health: StageHealth, address: str, name: str) -> None:
    """Look at a stage; end it by force where nothing else helps, say where it takes long."""
    try:
        if reason := await health.look(address):
            logger.error("%s %s: it is ended by force", name, reason)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        elif words := health.late():
            logger.warning("%s %s", name, words)
    except Exception:  # nobody waits for the task that asks: it would end unseen
        logger.exception("%s could not be asked whether it serves", name)


def loopback(place: StagePlace) -> str:
    """Return where a stage of this machine is reached."""
    return f"127.0.0.1:{place.address.rpartition(':')[2]}"


def keeper_of(
    settings: WorkerSettings, place: StagePlace, scratch: Path, environ: Mapping[str, str]
) -> Keeper:
    """Return what keeps one stage running."""
    file = scratch / f"stage-{place.index}.json"
    write_text(file, stage_settings(settings, place).to_json())
    command = (sys.executable, "-P", "-m", "outrider.worker", "stage", "--settings", str(file))
    environment = {**environ, **place.variables()}
    return Keeper(command, None, RHYTHM, name=f"stage {place.index}", environment=environment)


def stage_settings(settings: WorkerSettings, place: StagePlace) -> WorkerSettings:
    """Return the settings of a stage beside its leader, which has the ports and keys.

    Where there are processors enough for all stages, each keeps to its own.
    """
    each = settings.threads * settings.tensor_parallel
    own = settings.processors[place.index * each : (place.index + 1) * each]
    if len(settings.processors) < each * settings.pipeline.stages:
        own = settings.processors
    return replace(
        settings,
        processors=own,
        listen=ANY_PORT,
        control_listen="",
        http_listen="",
        api_keys_file=None,
        allowed_hosts=(),
        tls_cert=None,
        tls_key=None,
    )


def reserved_ports(count: int) -> list[socket.socket]:
    """Return sockets bound to ports of loopback, which nobody else gets while they are open: only
    who shares them may listen there, and these sockets do not."""
    ports = [socket.socket() for _ in range(count)]
    for port in ports:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port.bind(("127.0.0.1", 0))
    return ports


def places_at(ports: Sequence[socket.socket]) -> list[StagePlace]:
    """Return the places of stages that listen at reserved ports."""
    addresses = tuple(f"127.0.0.1:{port.getsockname()[1]}" for port in ports)
    return [StagePlace(index, addresses, reserved=True) for index in range(len(ports))]
