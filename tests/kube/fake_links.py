"""Links of a fake target: up once the draft at an address says over `Control` that it is ready.

Leaves which addresses there are to the policy.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import grpc
from grpc import aio

from outrider.contract.state import Link, LinkState
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal import control_pb2_grpc

POLL_SECONDS = 0.2
CALL_SECONDS = 2.0
LOOPBACK = "127.0.0.1"


class FakeLinks:
    """What a target knows of its drafts."""

    def __init__(self, own: str) -> None:
        """`own`: the pod's address. All pods of a pod network share one loopback, and what a pod
        would find on its own is at its address."""
        self._own = own
        self._channels: dict[str, aio.Channel] = {}
        self._known: dict[str, pb.State] = {}
        self._wanted: tuple[str, ...] = ()
        self._changed = asyncio.Event()

    def want(self, addresses: Sequence[str]) -> None:
        """Links to these drafts and to no others."""
        self._wanted = tuple(addresses)
        self._changed.set()

    def statuses(self, refuses: str) -> tuple[Link, ...]:
        """One for each wanted draft."""
        return tuple(self._status(address, refuses) for address in self._wanted)

    def _status(self, address: str, refuses: str) -> Link:
        draft = self._known.get(address)
        if draft is None:
            return Link(address)
        state = LinkState.REFUSED if refuses else LinkState.UP
        return Link(address, state, refuses, draft.revision, draft.incarnation)

    async def follow(self) -> None:
        """Asks the wanted drafts, again and again."""
        while True:
            self._changed.clear()
            asked = self._wanted  # others may be wanted by the time these have answered
            await self._close_all_but(asked)
            answers = await asyncio.gather(*map(self._ask, asked))
            pairs = zip(asked, answers, strict=True)
            self._known = {address: state for address, state in pairs if state is not None}
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), POLL_SECONDS)

    async def close(self) -> None:
        """Closes the connections."""
        await self._close_all_but(())

    async def _ask(self, address: str) -> pb.State | None:
        """The draft's state if it takes sessions."""
        if address not in self._channels:
            self._channels[address] = aio.insecure_channel(address.replace(LOOPBACK, self._own))
        control = control_pb2_grpc.ControlStub(self._channels[address])
        try:
            state = await control.GetState(pb.GetStateRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError:
            return None
        return state if state.ready and state.role == "draft" else None

    async def _close_all_but(self, kept: Sequence[str]) -> None:
        for address in [address for address in self._channels if address not in kept]:
            await self._channels.pop(address).close()
