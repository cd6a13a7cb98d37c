"""Codec of the link: messages to bytes and back; proto at the edge.

Checks that bytes are messages; leaves the validation of their content to the receiver.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar, assert_never

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.protos.v1 import inference_pb2
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
    joined,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth

OWN_FIELDS_OF_OPEN = ("seed", "choice")
M = TypeVar("M", pb.TargetMessage, pb.DraftMessage)

CLOSE_REASON = "CLOSE_REASON_"
"""Prefix of the proto enum's names."""


def encode_for_draft(message: FromTarget) -> bytes:
    """Return the bytes of one `TargetMessage`."""
    match message:
        case Commit():
            body = pb.TargetMessage(
                commit=pb.Commit(
                    session=message.session,
                    position=message.position,
                    tokens=message.tokens.tolist(),
                )
            )
        case Limits():
            body = pb.TargetMessage(limits=_limits(message))
        case Open():
            body = pb.TargetMessage(
                open=pb.Open(
                    session=message.session,
                    tokens=message.tokens.tolist(),
                    seed=message.sampling.seed,
                    choice=message.sampling.choice,
                    sampling=sampling_message(message.sampling),
                    limits=_limits(message.limits),
                    prompt_length=message.prompt,
                    traceparent=message.traceparent,
                )
            )
        case Close():
            body = pb.TargetMessage(close=_close(message))
        case _:
            assert_never(message)
    return body.SerializeToString()


def encode_for_target(messages: Sequence[FromDraft]) -> bytes:
    """Return the bytes of one `DraftMessage` that holds one message or several in order."""
    parts = joined(messages)
    if len(parts) == 1:
        return _draft_message(parts[0]).SerializeToString()
    batch = pb.Batch(messages=map(_draft_message, parts))
    return pb.DraftMessage(batch=batch).SerializeToString()


def _draft_message(message: FromDraft) -> pb.DraftMessage:
    match message:
        case Grow(session=session, growth=growth):
            return pb.DraftMessage(
                grow=pb.Grow(
                    session=session,
                    root_position=growth.root_position,
                    first_id=growth.first_id,
                    parents=growth.parents.tolist(),
                    tokens=growth.tokens.tolist(),
                    logprobs=growth.logprobs.tolist(),
                )
            )
        case Capacity():
            return pb.DraftMessage(
                capacity=pb.Capacity(sessions=message.sessions, tokens=message.tokens)
            )
        case Close():
            return pb.DraftMessage(close=_close(message))
        case _:
            assert_never(message)


def decode_from_target(payload: bytes) -> FromTarget:
    """Parse a target's message after its Hello; raise `ProtocolViolation`."""
    body = _parse(pb.TargetMessage(), payload)
    match body.WhichOneof("body"):
        case "commit":
            m = body.commit
            return Commit(m.session, m.position, _token_array(m.tokens))
        case "limits":
            return _limits_from(body.limits)
        case "open":
            o = body.open
            sampling = dataclasses.replace(
                sampling_params(o.sampling), seed=o.seed, choice=o.choice
            )
            tokens, limits = _token_array(o.tokens), _limits_from(o.limits)
            prompt = o.prompt_length if o.HasField("prompt_length") else len(tokens)
            return Open(o.session, tokens, sampling, limits, prompt, o.traceparent)
        case "close":
            return _close_from(body.close)
        case other:
            raise ProtocolViolation(f"unexpected message from a target: {other}")


def decode_from_draft(payload: bytes) -> list[FromDraft]:
    """Parse a draft's message after its Hello; raise `ProtocolViolation`."""
    body = _parse(pb.DraftMessage(), payload)
    if body.HasField("batch"):
        return [_from_draft(message) for message in body.batch.messages]
    return [_from_draft(body)]


def _from_draft(body: pb.DraftMessage) -> FromDraft:
    match body.WhichOneof("body"):
        case "grow":
            g = body.grow
            growth = Growth(
                root_position=g.root_position,
                first_id=_signed(g.first_id),
                parents=_id_array(g.parents),
                tokens=_token_array(g.tokens),
                logprobs=np.array(g.logprobs, np.float32),
            )
            return Grow(g.session, growth)
        case "capacity":
            return Capacity(body.capacity.sessions, body.capacity.tokens)
        case "close":
            return _close_from(body.close)
        case other:
            raise ProtocolViolation(f"unexpected message from a draft: {other}")


def _parse(message: M, payload: bytes) -> M:
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ProtocolViolation(f"bytes that are no message: {error}") from None
    return message


def _token_array(values: object) -> NDArray[np.int32]:
    """Return token ids; those past int32 become negative, which no vocabulary holds."""
    return np.array(values, np.uint32).view(np.int32)


def _id_array(values: object) -> NDArray[np.int64]:
    """Return node ids; those past int64 become negative, which no node has."""
    return np.array(values, np.uint64).view(np.int64)


def _signed(value: int) -> int:
    return value if value < 2**63 else -1


def sampling_message(params: SamplingParams) -> inference_pb2.Sampling:
    """Convert sampling params, all but seed and choice, which `Open` has itself."""
    names = [f.name for f in dataclasses.fields(params) if f.name not in OWN_FIELDS_OF_OPEN]
    values: dict[str, Any] = {name: getattr(params, name) for name in names}
    return inference_pb2.Sampling(**values | {"logit_bias": dict(params.logit_bias)})


def sampling_params(message: inference_pb2.Sampling, **given: int) -> SamplingParams:
    """Convert a message; fields that are not set take `given`, or else their defaults."""
    values: dict[str, Any] = given | {field.name: value for field, value in message.ListFields()}
    return SamplingParams(**values | {"logit_bias": tuple(sorted(message.logit_bias.items()))})


def _limits(limits: Limits) -> pb.Limits:
    return pb.Limits(
        session=limits.session,
        depth=limits.depth,
        width=limits.width,
        nodes_ahead=limits.nodes_ahead,
        error_scale=limits.error_scale,
        link_lag_micros=limits.link_lag_micros,
    )


def _limits_from(m: pb.Limits) -> Limits:
    return Limits(m.session, m.depth, m.width, m.nodes_ahead, m.error_scale, m.link_lag_micros)


def _close(message: Close) -> pb.Close:
    reason = pb.CloseReason.Value(f"{CLOSE_REASON}{message.reason.name}")
    return pb.Close(session=message.session, reason=reason, detail=message.detail)


def _close_from(m: pb.Close) -> Close:
    names = pb.CloseReason.DESCRIPTOR.values_by_number
    name = names[m.reason].name.removeprefix(CLOSE_REASON) if m.reason in names else ""
    reason = CloseReason.__members__.get(name, CloseReason.INVALID)
    return Close(m.session, reason, m.detail)
