"""Peers that choose what carries a link against the rules, or lose it: real streams, no model."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from outrider.contract.settings import LinkTransport
from outrider.contract.state import Link, LinkState
from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, PeerLeft
from outrider.worker.link import distributed, payloads
from outrider.worker.link.client import PAIR, DraftLinks
from outrider.worker.link.handshake import hello_to_draft, hello_to_target
from outrider.worker.link.meeting import MeetingPlace, hand_over
from outrider.worker.link.service import SERVICE, DrafterService, SendQueues
from outrider.worker.link.wire import Limits
from outrider.worker.messages import (
    DirectLinkLost,
    DirectLinkUp,
    Identity,
    LinkDown,
    LinkStates,
    LinkUp,
)
from tests.process.test_unread import SECONDS, Engine, served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

(LIMITS,) = payloads.for_draft([Limits(1, 8, 4, 32, 1.0)])


def identity(folder: Path | None, link: LinkTransport = LinkTransport.AUTO) -> Identity:
    own = Identity("revision", 1, 2048, 64, np.ones(1, np.uint64), sessions=2)
    return replace(own, link=link, link_dir=None if folder is None else str(folder))


def choice(transport: "pb.LinkTransport", **more: Any) -> bytes:
    return pb.TargetMessage(choice=pb.Choice(transport=transport, **more)).SerializeToString()


JOINED = identity(None, LinkTransport.DISTRIBUTED)
NOWHERE = pb.Rendezvous(host="127.0.0.1", port=1, prefix="p")
GRPC = choice(pb.LINK_TRANSPORT_GRPC, detail="no reason")
SHARED = choice(pb.LINK_TRANSPORT_SHARED_MEMORY)


class Target:
    """A stream to a draft, whose messages the test writes."""

    def __init__(self, call: Any, hello: pb.Hello) -> None:
        self.call, self.hello = call, hello

    async def refusal(self) -> str:
        """Why the draft ends the stream."""
        async with asyncio.timeout(SECONDS):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
        return "it ended well"


@contextlib.asynccontextmanager
async def linked(own: Identity, drafter: DrafterService, *messages: bytes) -> AsyncIterator[Target]:
    """A target that has said Hello, and then these messages."""
    async with served(drafter.handler()) as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(PAIR)()
        for message in (hello_to_draft(own), *messages):
            await call.write(message)
        draft = pb.DraftMessage.FromString(await call.read()).hello
        yield Target(call, draft)
        call.cancel()


def run_draft(
    own: Identity, case: Callable[[DrafterService, Engine, SendQueues], Awaitable[None]]
) -> None:
    """Run a case with a draft's service, which shares memory if its identity does."""

    async def run() -> None:
        engine, queues = Engine(), SendQueues()
        meeting = (
            MeetingPlace.open(Path(own.link_dir)) if own.shares_memory and own.link_dir else None
        )
        try:
            await case(DrafterService(own, engine.hear, queues, meeting), engine, queues)
        finally:
            if meeting is not None:
                meeting.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (LIMITS, "the message after Hello must be Choice"),
        (b"\xff garbage", "no message"),
        (SHARED, "shared memory was chosen, and none was handed over"),
    ],
)
def test_a_choice_against_the_rules_is_refused(tmp_path: Path, message: bytes, says: str) -> None:
    near = identity(tmp_path)

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        async with linked(near, drafter, message) as target:
            assert re.search(f"FAILED_PRECONDITION.*{says}", await target.refusal())
        assert engine.told == []

    run_draft(near, case)


def test_a_target_may_choose_the_stream(tmp_path: Path) -> None:
    near = identity(tmp_path)

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        async with linked(near, drafter, GRPC):
            await engine.until(LinkUp)

    run_draft(near, case)


def test_a_draft_that_names_shared_memory_takes_the_stream_only_after_a_break(
    tmp_path: Path,
) -> None:
    near, far = identity(tmp_path), identity(None)
    named = identity(tmp_path, LinkTransport.SHARED_MEMORY)

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        async with linked(far, drafter) as target:
            assert "the target shares no memory" in await target.refusal()
        async with linked(near, drafter, GRPC) as target:
            assert "is shared_memory: no reason" in await target.refusal()
        assert engine.told == []
        async with linked(near, drafter, choice(pb.LINK_TRANSPORT_GRPC, fallback=True)):
            await engine.until(LinkUp)

    run_draft(named, case)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (GRPC, "FAILED_PRECONDITION.*is distributed: no reason"),
        (SHARED, "FAILED_PRECONDITION.*none was handed over"),
        (choice(pb.LINK_TRANSPORT_DISTRIBUTED), "FAILED_PRECONDITION.*cannot be joined"),
        (
            choice(pb.LINK_TRANSPORT_DISTRIBUTED, rendezvous=NOWHERE),
            "DATA_LOSS.*(cannot be joined|did not join)",
        ),
    ],
)
def test_a_draft_that_cannot_join_says_so(
    message: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "SECONDS", 2.0)  # nobody is there: no wait is long enough

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        async with linked(JOINED, drafter, message) as target:
            assert re.search(says, await target.refusal())
        async with linked(JOINED, drafter, choice(pb.LINK_TRANSPORT_GRPC, fallback=True)):
            await engine.until(LinkUp)

    run_draft(JOINED, case)


def test_a_draft_that_was_not_asked_to_join_refuses_it(tmp_path: Path) -> None:
    near = identity(tmp_path)

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        nowhere = choice(pb.LINK_TRANSPORT_DISTRIBUTED, rendezvous=NOWHERE)
        async with linked(near, drafter, nowhere) as target:
            assert re.search("FAILED_PRECONDITION.*cannot be joined", await target.refusal())
        assert engine.told == []

    run_draft(near, case)


@contextlib.asynccontextmanager
async def sharing(
    own: Identity, drafter: DrafterService, engine: Engine, folder: Path
) -> AsyncIterator[tuple[Target, DirectLinkUp]]:
    """A target that shares memory with the draft."""
    async with linked(own, drafter) as target:
        memory = await hand_over(folder, target.hello.meeting)
        await target.call.write(SHARED)
        up = await engine.until(DirectLinkUp)
        yield target, up
        up.direct.close()
        memory.close()


def test_messages_on_the_stream_of_shared_memory_end_the_link(tmp_path: Path) -> None:
    near = identity(tmp_path)

    async def case(drafter: DrafterService, engine: Engine, _: SendQueues) -> None:
        async with sharing(near, drafter, engine, tmp_path) as (target, _up):
            await target.call.write(LIMITS)
            says = await target.refusal()
            assert "INVALID_ARGUMENT" in says
            assert "do not go over its stream" in says
            await engine.until(LinkDown)

    run_draft(near, case)


@pytest.mark.parametrize("error", [LinkBroken("words"), PeerLeft("gone")])
def test_a_draft_that_loses_its_memory_says_so_on_the_stream(
    tmp_path: Path, error: LinkBroken | PeerLeft
) -> None:
    near = identity(tmp_path)

    async def case(drafter: DrafterService, engine: Engine, queues: SendQueues) -> None:
        async with sharing(near, drafter, engine, tmp_path) as (target, up):
            queues.send([DirectLinkLost(up.up.link, error)])
            assert await target.refusal() == f"DATA_LOSS: {error}"
            await engine.until(LinkDown)

    run_draft(near, case)


Draft = Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]


async def states(engine: Engine, holds: Callable[[Link], bool]) -> Link:
    """Wait for a state of the one link."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [m.links[0] for m in engine.told if isinstance(m, LinkStates) and m.links]
            for status in found:
                if holds(status):
                    return status
            await engine.more()


def run_target(
    own: Identity, pair: Draft, case: Callable[[DraftLinks, Engine], Awaitable[None]]
) -> None:
    """Run a case with the links of a target to one draft, which is `pair`."""

    async def run() -> None:
        engine = Engine()
        method: Any = grpc.stream_stream_rpc_method_handler(pair)
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Pair": method})
        links = DraftLinks(own, engine.hear)
        async with served(handler) as address:
            links.set_addresses([address])
            await case(links, engine)
            await links.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["../draft", "draft-0123456789abcdef.sock"])
def test_a_draft_that_invites_to_nowhere_is_linked_by_the_stream(tmp_path: Path, name: str) -> None:
    near, said = identity(tmp_path), list[pb.Choice]()

    async def pair(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield hello_to_target(near, pb.Meeting(socket=name, token=bytes(16)))
        await anext(incoming)
        said.append(pb.TargetMessage.FromString(await anext(incoming)).choice)
        await asyncio.Event().wait()

    async def case(links: DraftLinks, engine: Engine) -> None:
        await engine.until(LinkUp)
        status = await states(engine, lambda link: link.state is LinkState.UP)
        assert status.transport == LinkTransport.GRPC
        assert re.search("no socket of its own|No such file", status.detail)
        while not said:
            await asyncio.sleep(0.01)
        assert said[0].transport == pb.LINK_TRANSPORT_GRPC
        assert said[0].detail == status.detail

    run_target(near, pair, case)


def test_a_target_that_names_shared_memory_refuses_a_draft_without(tmp_path: Path) -> None:
    async def pair(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield hello_to_target(identity(None))
        await asyncio.Event().wait()

    async def case(links: DraftLinks, engine: Engine) -> None:
        status = await states(engine, lambda link: link.state is LinkState.REFUSED)
        assert "settings.link of the target is shared_memory: the draft shares" in status.detail
        assert not any(isinstance(m, LinkUp) for m in engine.told)

    run_target(identity(tmp_path, LinkTransport.SHARED_MEMORY), pair, case)


def test_a_draft_that_never_joins_is_linked_by_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SECONDS", 2.0)
    said = list[pb.Choice]()

    async def pair(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield hello_to_target(JOINED)
        await anext(incoming)
        said.append(pb.TargetMessage.FromString(await anext(incoming)).choice)
        await asyncio.Event().wait()

    async def case(links: DraftLinks, engine: Engine) -> None:
        status = await states(engine, lambda link: link.state is LinkState.UP)
        assert status.transport == LinkTransport.GRPC
        assert re.search("gRPC stands in for torch.distributed: no group .* came up", status.detail)
        await engine.until(LinkUp)
        assert not any(isinstance(m, DirectLinkUp) for m in engine.told)
        while len(said) < 2:
            await asyncio.sleep(0.01)
        first, second = said
        assert first.transport == pb.LINK_TRANSPORT_DISTRIBUTED
        assert (second.transport, second.fallback) == (pb.LINK_TRANSPORT_GRPC, True)

    run_target(JOINED, pair, case)


def test_a_draft_that_leaves_instead_of_joining_is_not_waited_for() -> None:
    """Its stream's end is the reason, whatever joining would say later."""

    async def pair(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield hello_to_target(JOINED)
        await anext(incoming)
        await anext(incoming)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no more of this")

    async def case(links: DraftLinks, engine: Engine) -> None:
        status = await states(engine, lambda link: link.state is LinkState.REFUSED)
        assert "no more of this" in status.detail

    run_target(JOINED, pair, case)


@pytest.mark.parametrize("who", ["target", "draft"])
def test_after_a_break_the_next_stream_carries_the_messages(tmp_path: Path, who: str) -> None:
    near, queues = identity(tmp_path), SendQueues()
    theirs = Engine()

    async def run() -> None:
        engine, meeting = Engine(), MeetingPlace.open(tmp_path)
        drafter = DrafterService(near, theirs.hear, queues, meeting)
        links = DraftLinks(near, engine.hear)
        async with served(drafter.handler()) as address:
            links.set_addresses([address])
            ours, other = await engine.until(DirectLinkUp), await theirs.until(DirectLinkUp)
            if who == "target":
                links.lose(ours.up.link, LinkBroken("words"))
            else:
                queues.send([DirectLinkLost(other.up.link, LinkBroken("words"))])
            await engine.until(LinkDown)
            await engine.until(LinkUp)
            await theirs.until(LinkUp)
            status = await states(engine, lambda link: link.transport == LinkTransport.GRPC)
            assert re.search("gRPC stands in for shared memory: .*words", status.detail)
            await links.close()
        for end in (ours, other):
            end.direct.close()
        meeting.close()

    asyncio.run(run())
