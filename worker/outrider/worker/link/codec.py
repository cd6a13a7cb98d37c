"""The bytes of the link's messages, and back: proto at the edge.

Checks that bytes are messages; leaves what a message may say to whoever receives it.
"""

from collections.abc import Sequence
from typing import TypeVar, assert_never

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

M = TypeVar("M", pb.TargetMessage, pb.DraftMessage)


def encode_for_draft(message: FromTarget) -> bytes:
    """Bytes of one `TargetMessage`."""
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
                    sampling=_sampling(message.sampling),
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
    """Bytes of one `DraftMessage` that holds one message or several in order."""
    parts = joined(messages)
    if len(parts) == 1:
        return _draft_message(parts[0]).SerializeToString()
    batch = pb.Batch(messages=map(_draft_message, parts))
    return pb.DraftMessage(batch=batch).SerializeToString()


def _draft_message(message: FromDraft) -> pb.DraftMessage:
    match message:
        case Grow():
            return pb.DraftMessage(
                grow=pb.Grow(
                    session=message.session,
                    root_position=message.root_position,
                    first_id=message.first_id,
                    parents=message.parents.tolist(),
                    tokens=message.tokens.tolist(),
                    logprobs=message.logprobs.tolist(),
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
    """Parses what a target sent after its Hello; raises `ProtocolViolation`."""
    body = _parse(pb.TargetMessage(), payload)
    match body.WhichOneof("body"):
        case "commit":
            m = body.commit
            return Commit(m.session, m.position, _token_array(m.tokens))
        case "limits":
            return _limits_from(body.limits)
        case "open":
            o = body.open
            tokens, limits = _token_array(o.tokens), _limits_from(o.limits)
            prompt = o.prompt_length if o.HasField("prompt_length") else len(tokens)
            return Open(o.session, tokens, _sampling_from(o), limits, prompt, o.traceparent)
        case "close":
            return _close_from(body.close)
        case other:
            raise ProtocolViolation(f"unexpected message from a target: {other}")


def decode_from_draft(payload: bytes) -> list[FromDraft]:
    """Parses what a draft sent after its Hello; raises `ProtocolViolation`."""
    body = _parse(pb.DraftMessage(), payload)
    if body.HasField("batch"):
        return [_from_draft(message) for message in body.batch.messages]
    return [_from_draft(body)]


def _from_draft(body: pb.DraftMessage) -> FromDraft:
    match body.WhichOneof("body"):
        case "grow":
            g = body.grow
            return Grow(
                session=g.session,
                root_position=g.root_position,
                first_id=_signed(g.first_id),
                parents=_id_array(g.parents),
                tokens=_token_array(g.tokens),
                logprobs=np.array(g.logprobs, np.float32),
            )
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
    """Token ids; those past int32 become negative, which no vocabulary holds."""
    return np.array(values, np.uint32).view(np.int32)


def _id_array(values: object) -> NDArray[np.int64]:
    """Node ids; those past int64 become negative, which no node has."""
    return np.array(values, np.uint64).view(np.int64)


def _signed(value: int) -> int:
    return value if value < 2**63 else -1


def _sampling(sampling: SamplingParams) -> inference_pb2.Sampling:
    return inference_pb2.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=dict(sampling.logit_bias),
    )


def _sampling_from(opening: pb.Open) -> SamplingParams:
    """Settings of a session; a target that says nothing of penalties has none."""
    m = opening.sampling
    return SamplingParams(
        temperature=m.temperature,
        top_k=m.top_k,
        top_p=m.top_p,
        min_p=m.min_p,
        seed=opening.seed,
        choice=opening.choice,
        frequency_penalty=m.frequency_penalty,
        presence_penalty=m.presence_penalty,
        repetition_penalty=m.repetition_penalty if m.HasField("repetition_penalty") else 1.0,
        logit_bias=tuple(sorted(m.logit_bias.items())),
    )


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
    reason = pb.CloseReason.ValueType(message.reason)
    return pb.Close(session=message.session, reason=reason, detail=message.detail)


def _close_from(m: pb.Close) -> Close:
    try:
        reason = CloseReason(m.reason)
    except ValueError:
        reason = CloseReason.INVALID
    return Close(m.session, reason, m.detail)
