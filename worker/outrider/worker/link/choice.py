"""Choice of what carries a link's messages after Hello: the target's, and the draft's view of it.

The shortest that both sides can have is taken. One that the settings of either side name is wanted,
and refused with the reason where it cannot be had; once it was had and broke, gRPC stands in.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from outrider.contract.settings import LinkTransport
from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, PairRefused, ProtocolViolation
from outrider.worker.link.distributed import PairRendezvous, open_rendezvous
from outrider.worker.link.handshake import DraftHello, TargetHello
from outrider.worker.link.meeting import LinkMemory, MeetingPlace, hand_over
from outrider.worker.link.payloads import parsed
from outrider.worker.messages import Identity

NAMES = {
    LinkTransport.AUTO: "shared memory",
    LinkTransport.SHARED_MEMORY: "shared memory",
    LinkTransport.DISTRIBUTED: "torch.distributed",
    LinkTransport.GRPC: "gRPC",
}
"""What the settings want, for people."""

NAMED = (LinkTransport.SHARED_MEMORY, LinkTransport.DISTRIBUTED)
"""For which gRPC only stands in."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a target has chosen, and what it is made of."""

    transport: LinkTransport
    detail: str = ""
    """For people: why nothing shorter."""
    memory: LinkMemory | None = None
    """Memory that target and draft both have."""
    rendezvous: PairRendezvous | None = None
    """Where the draft is to join."""


async def choose(own: Identity, address: str, draft: DraftHello, broke: str) -> Chosen:
    """Choose what carries the messages of a link to the draft at `address`.

    `broke`: why only gRPC is to be used for a while; empty: anything may be. Raises `PairRefused`
    where the target's settings name what cannot be had, `LinkBroken` where it should be.
    """
    if broke:
        return Chosen(LinkTransport.GRPC, f"gRPC stands in for {NAMES[own.link]}: {broke}")
    if own.distributed:
        if not draft.distributed:
            raise PairRefused(f"settings.link of the target is {own.link}, of the draft it is not")
        rendezvous = await asyncio.to_thread(
            open_rendezvous, address
        )  # asks for an address by name
        return Chosen(LinkTransport.DISTRIBUTED, rendezvous=rendezvous)
    return await _memory(own, draft)


async def _memory(own: Identity, draft: DraftHello) -> Chosen:
    """Hand memory to a draft, or choose gRPC."""
    detail = ""
    if own.shares_memory and draft.meeting is None:
        detail = "the draft shares no memory"
    elif own.shares_memory and own.link_dir is not None and draft.meeting is not None:
        try:
            memory = await hand_over(Path(own.link_dir), draft.meeting)
            return Chosen(LinkTransport.SHARED_MEMORY, memory=memory)
        except LinkBroken as error:
            detail = str(error)
    if own.link is LinkTransport.SHARED_MEMORY:
        raise PairRefused(f"settings.link of the target is {own.link}: {detail}")
    return Chosen(LinkTransport.GRPC, detail)


def choice_message(chosen: Chosen, broke: str) -> bytes:
    """Return what a target says of its choice."""
    transport = pb.LinkTransport.Value(f"LINK_TRANSPORT_{chosen.transport.name}")
    choice = pb.Choice(transport=transport, detail=chosen.detail, fallback=bool(broke))
    if chosen.rendezvous is not None:
        choice.rendezvous.CopyFrom(chosen.rendezvous.offer())
    return pb.TargetMessage(choice=choice).SerializeToString()


def is_told(own: Identity, draft: DraftHello) -> bool:
    """Return True if a target tells this draft of its choice: both said that there is one."""
    if own.distributed:
        return draft.distributed
    return own.shares_memory and draft.meeting is not None


def must_choose(own: Identity, meeting: MeetingPlace | None, target: TargetHello) -> bool:
    """Return True if a target's next message is its choice.

    Raises `PairRefused` where the draft's settings name what the target does not have.
    """
    if own.distributed:
        if not target.distributed:
            raise PairRefused(f"settings.link of the draft is {own.link}, of the target it is not")
        return True
    if own.link is LinkTransport.SHARED_MEMORY and not target.shares_memory:
        raise PairRefused(f"settings.link of the draft is {own.link}: the target shares no memory")
    return meeting is not None and target.shares_memory


def accept_choice(own: Identity, payload: bytes, memory: LinkMemory | None) -> pb.Choice:
    """Return a target's choice; `memory`: what it handed over.

    Raises `ProtocolViolation`, and `PairRefused` where the draft's settings name something else.
    """
    message = parsed(pb.TargetMessage, payload)
    if message.WhichOneof("body") != "choice":
        raise ProtocolViolation("the message after Hello must be Choice")
    choice = message.choice
    if choice.transport == pb.LINK_TRANSPORT_SHARED_MEMORY:
        if memory is None:
            raise ProtocolViolation("shared memory was chosen, and none was handed over")
    elif choice.transport == pb.LINK_TRANSPORT_DISTRIBUTED:
        if not own.distributed or not choice.HasField("rendezvous"):
            raise ProtocolViolation("torch.distributed was chosen, and cannot be joined")
    elif own.link in NAMED and not choice.fallback:
        raise PairRefused(f"settings.link of the draft is {own.link}: {choice.detail}")
    return choice
