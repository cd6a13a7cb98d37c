"""Stages of a pipelined target that run on its leader's machine, as processes of its worker.

Each is started again whenever it ends, unless it never ran. Leaves what a stage does to
`stage_node`, the group of all stages to the engine.
"""

import asyncio
import contextlib
import dataclasses
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from outrider.contract.settings import WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.host.keep import Keeper, Rhythm

ANY_PORT = "127.0.0.1:0"
RHYTHM = Rhythm(first=0.1, last=10.0, healthy=30.0, grace=2.0)


class StageProcesses:
    """The stages that this worker starts."""

    def __init__(self, place: StagePlace, keepers: list[Keeper]) -> None:
        self.place = place
        """Of the leader's own stage."""
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Exit status of one that could not start, until `were_up`."""
        self.were_up = False
        """True once all stages have run; those that end from now on only start again."""
        self._stop = [keeper.stop for keeper in keepers]
        self._kept = [asyncio.create_task(keeper.keep(self._ended)) for keeper in keepers]

    @classmethod
    def start(cls, settings: WorkerSettings, scratch: Path, environ: Mapping[str, str]) -> Self:
        """Start the first stage where the environment names all of them, else every stage.

        Raises `SettingsError`.
        """
        settings.check_pipelined()
        count = settings.pipeline.stages
        place = StagePlace.of(environ, count)
        if place is None:
            addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
            places = [StagePlace(index, addresses) for index in range(count)]
        else:
            places = [place]
        return cls(places[0], [keeper_of(settings, one, scratch, environ) for one in places])

    async def close(self) -> None:
        """End all of them."""
        for stop in self._stop:
            stop.set()
        await asyncio.gather(*self._kept)

    def _ended(self, status: int) -> None:
        """Give up where a stage refuses to start: it would again."""
        if status > 0 and not self.were_up and not self.failed.done():
            self.failed.set_result(status)


def keeper_of(
    settings: WorkerSettings, place: StagePlace, scratch: Path, environ: Mapping[str, str]
) -> Keeper:
    """Return what keeps one stage running."""
    file = scratch / f"stage-{place.index}.json"
    file.write_text(stage_settings(settings, place).to_json())
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
    return dataclasses.replace(
        settings,
        processors=own,
        listen=ANY_PORT,
        http_listen="",
        api_keys_file=None,
        tls_cert=None,
        tls_key=None,
    )


def free_ports(count: int) -> list[int]:
    """Return ports of loopback on which nobody listened a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
