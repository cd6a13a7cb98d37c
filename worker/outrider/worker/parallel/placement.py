"""Placement of ranks: those of a replica on this machine, and the processors of each.

Leaves starting them to `processes` and `launch.rank_group`.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from outrider.contract import process
from outrider.contract.settings import SettingsError, WorkerSettings
from outrider.worker.errors import GroupLost
from outrider.worker.host.address import address_towards

LEADER = 0
"""Number of the rank that leads."""
LOOPBACK = "127.0.0.1"
NAME_SECONDS = 600.0
"""Longest wait for the leader's name: its pod may be started later."""
AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """This machine among those of one replica."""

    nodes: int = 1
    node: int = 0
    leader: str = LOOPBACK
    """Host of node 0."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Read the environment; raises `SettingsError` naming the variable."""
        nodes = _number(environ, process.ENV_NODES, 1, 1)
        if nodes == 1:
            return cls()
        leader = environ.get(process.ENV_LEADER, "")
        if not leader:
            raise SettingsError(f"{process.ENV_LEADER}: missing; {process.ENV_NODES} is {nodes}")
        return cls(nodes, _number(environ, process.ENV_NODE, 0, None, nodes - 1), leader)

    def ranks(self, degree: int) -> range:
        """Return the ranks of this machine; raises `SettingsError` if not all can have as many."""
        if degree % self.nodes:
            raise SettingsError(
                f"{process.ENV_NODES}: {self.nodes} is not allowed; it must divide "
                f"settings.tensor_parallel, which is {degree}"
            )
        each = degree // self.nodes
        return range(self.node * each, (self.node + 1) * each)

    @property
    def listen(self) -> tuple[str, int]:
        """Host and port that the leader binds for ranks to meet; port 0: any free one."""
        return (LOOPBACK, 0) if self.nodes == 1 else ("", process.RENDEZVOUS_PORT)

    def own_address(self) -> str:
        """Return this machine's address as the others reach it; wait for the leader's name.

        Raises `GroupLost` if that takes too long.
        """
        if self.nodes == 1:
            return LOOPBACK
        until = time.monotonic() + NAME_SECONDS
        while True:
            try:
                return address_towards(self.leader)
            except OSError as error:
                if time.monotonic() > until:
                    raise GroupLost(f"{process.ENV_LEADER}: {self.leader!r}: {error}") from error
            time.sleep(AGAIN_SECONDS)


def processors_of(settings: WorkerSettings, place: int, ranks: int) -> tuple[int, ...]:
    """Return those of rank number `place` of a machine's `ranks`.

    They are its own if there is one for each thread of all ranks. Otherwise they are shared: there
    are too few, or other workers keep to them too.
    """
    threads = settings.threads
    if len(settings.processors) != threads * ranks:
        return settings.processors
    return settings.processors[place * threads : (place + 1) * threads]


def leaders_processors(settings: WorkerSettings) -> tuple[int, ...]:
    """Return those of rank 0, or of an engine without ranks; raises `SettingsError`."""
    ranks = RankPlacement.of(os.environ).ranks(settings.tensor_parallel)
    return processors_of(settings, 0, len(ranks))


def engines_processors(settings: WorkerSettings) -> tuple[int, ...]:
    """Return those of a target's engine process; raises `SettingsError`.

    They are rank 0's. One whose stages compute would take them from stage 0: it keeps to those of
    its server.
    """
    if settings.pipeline.stages > 1:
        return settings.other_processors
    return leaders_processors(settings)


def _number(
    environ: Mapping[str, str], key: str, least: int, missing: int | None, most: int = 64
) -> int:
    text = environ.get(key)
    if text is None and missing is not None:
        return missing
    if text is None or not text.isdecimal() or not least <= int(text) <= most:
        raise SettingsError(f"{key}: {text!r} is not allowed; it must be {least} to {most}")
    return int(text)
