"""Choice of what carries a link's messages after Hello: the target's, and the draft's view of it.

The shortest that both sides can have is taken. One that the settings of either side name is wanted,
and refused with the reason where it cannot be had; once it was had and broke, gRPC stands in.
"""

from pathlib import Path

from google.protobuf.message import DecodeError

from outrider.contract.settings import LinkTransport
from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken, PairRefused, ProtocolViolation
from outrider.worker.link.handshake import DraftHello, TargetHello
from outrider.worker.link.meeting import Meeting, Memory, hand_over
from outrider.worker.messages import Identity


async def choose(own: Identity, draft: DraftHello, broke: str) -> tuple[Memory | None, str]:
    """Hand memory to a draft and return it; or None, for gRPC, and why that is.

    `broke`: why shared memory is not to be used for a while; empty: it may be. Raises `PairRefused`
    where the target's settings name shared memory and it cannot be had.
    """
    if broke:
        return None, f"gRPC stands in for shared memory: {broke}"
    detail = ""
    if own.shares_memory and draft.meeting is None:
        detail = "the draft shares no memory"
    elif own.shares_memory and own.link_dir is not None and draft.meeting is not None:
        try:
            return await hand_over(Path(own.link_dir), draft.meeting), ""
        except LinkBroken as error:
            detail = str(error)
    if own.link is LinkTransport.SHARED_MEMORY:
        raise PairRefused(f"settings.link of the target is {own.link}: {detail}")
    return None, detail


def choice_message(memory: Memory | None, detail: str, broke: str) -> bytes:
    """Return what a target says of its choice, where the draft named shared memory too."""
    transport = pb.LINK_TRANSPORT_SHARED_MEMORY if memory else pb.LINK_TRANSPORT_GRPC
    choice = pb.Choice(transport=transport, detail=detail, fallback=bool(broke))
    return pb.TargetMessage(choice=choice).SerializeToString()


def must_choose(own: Identity, meeting: Meeting | None, target: TargetHello) -> bool:
    """Return True if a target's next message is its choice.

    Raises `PairRefused` where the draft's settings name shared memory and the target shares none.
    """
    if own.link is LinkTransport.SHARED_MEMORY and not target.shares_memory:
        raise PairRefused(f"settings.link of the draft is {own.link}: the target shares no memory")
    return meeting is not None and target.shares_memory


def accept_choice(own: Identity, payload: bytes, memory: Memory | None) -> bool:
    """Return True if a target chose shared memory, False for gRPC; `memory`: what it handed over.

    Raises `ProtocolViolation`, and `PairRefused` where the draft's settings name shared memory.
    """
    message = pb.TargetMessage()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    if message.WhichOneof("body") != "choice":
        raise ProtocolViolation("the message after Hello must be Choice")
    choice = message.choice
    if choice.transport == pb.LINK_TRANSPORT_SHARED_MEMORY:
        if memory is None:
            raise ProtocolViolation("shared memory was chosen, and none was handed over")
        return True
    if own.link is LinkTransport.SHARED_MEMORY and not choice.fallback:
        raise PairRefused(f"settings.link of the draft is {own.link}: {choice.detail}")
    return False
