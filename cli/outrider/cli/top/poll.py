"""States of the workers of a service, polled again and again.

Finds drafts through the links of their targets. What states mean is left to `figures`.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.access import OPEN, Access
from outrider.client import AsyncClient, ClientError, State
from outrider.contract.settings import Role


@dataclass(frozen=True, slots=True)
class Look:
    """State of one worker at one time."""

    address: str
    at: float
    """`time.monotonic()`."""
    state: State | None
    """None: it did not answer."""
    error: str = ""
    """Why not."""


class PolledWorkers:
    """The workers at some addresses and the drafts that they name. Use as `async with`."""

    def __init__(self, addresses: Sequence[str], timeout: float, access: Access = OPEN) -> None:
        """`timeout`: seconds that one worker may take to answer; `access`: to those at `addresses`.

        Drafts are asked without key and TLS, of which they know nothing.
        """
        self._given = tuple(dict.fromkeys(addresses))
        self._timeout = timeout
        self._access = access
        self._clients: dict[str, AsyncClient] = {}
        self._drafts: dict[str, tuple[str, ...]] = {}
        """Of each target, as it last said: one that is down keeps its drafts in sight."""

    async def look(self) -> tuple[Look, ...]:
        """Every worker as it is now: those given, in order, then the drafts of the targets."""
        given = await self._ask(self._given)
        for one in given:
            if one.state is not None and one.state.role is Role.TARGET:
                self._drafts[one.address] = tuple(link.address for link in one.state.links)
        named = (draft for drafts in self._drafts.values() for draft in drafts)
        others = [draft for draft in dict.fromkeys(named) if draft not in self._given]
        return (*given, *await self._ask(others))

    async def _ask(self, addresses: Sequence[str]) -> tuple[Look, ...]:
        return tuple(await asyncio.gather(*map(self._one, addresses)))

    async def _one(self, address: str) -> Look:
        if address not in self._clients:
            access = self._access if address in self._given else OPEN
            self._clients[address] = access.client(address)
        try:
            state = await self._clients[address].state(timeout=self._timeout)
        except ClientError as error:
            return Look(address, time.monotonic(), None, str(error))
        return Look(address, time.monotonic(), state)

    async def __aenter__(self) -> "PolledWorkers":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))
