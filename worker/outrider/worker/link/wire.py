"""Messages of the link between a target and a draft, as domain types.

Says nothing about who sends what when. Leaves their bytes to `wire_bytes`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.sampling.params import SamplingParams


class CloseReason(enum.IntEnum):
    """Why a session ended."""

    FINISHED = pb.CLOSE_REASON_FINISHED
    EVICTED = pb.CLOSE_REASON_EVICTED
    DRAINING = pb.CLOSE_REASON_DRAINING
    OVERLOADED = pb.CLOSE_REASON_OVERLOADED
    TOO_LONG = pb.CLOSE_REASON_TOO_LONG
    INVALID = pb.CLOSE_REASON_INVALID


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the draft may run ahead."""

    session: int
    depth: int
    width: int
    nodes_ahead: int
    error_scale: float
    link_lag_micros: int = 0


@dataclass(frozen=True, slots=True)
class Open:
    """A sequence asks to be drafted for."""

    session: int
    tokens: NDArray[np.int32]
    sampling: SamplingParams
    limits: Limits
    prompt: int
    """How many of the tokens were given, not drawn; they may be more than there are."""
    traceparent: str = ""
    """The request's span, as W3C's header has it; empty: not traced."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens were committed after the root at `position`."""

    session: int
    position: int
    tokens: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Grow:
    """The nodes of one draft pass."""

    session: int
    root_position: int
    first_id: int
    parents: NDArray[np.int64]  # [n] 0 is the draft's root
    tokens: NDArray[np.int32]  # [n]
    logprobs: NDArray[np.float32]  # [n] conditional, natural log


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room for more sessions."""

    sessions: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Close:
    """A session ends."""

    session: int
    reason: CloseReason
    detail: str = ""


FromTarget = Open | Commit | Limits | Close
FromDraft = Grow | Capacity | Close


def joined(messages: Sequence[FromDraft]) -> list[FromDraft]:
    """The same messages, with growth of one tree that follows on as one `Grow`."""
    parts: list[FromDraft] = []
    for message in messages:
        last = parts[-1] if parts else None
        if isinstance(last, Grow) and isinstance(message, Grow) and _follows(last, message):
            parts[-1] = Grow(
                last.session,
                last.root_position,
                last.first_id,
                np.concatenate([last.parents, message.parents]),
                np.concatenate([last.tokens, message.tokens]),
                np.concatenate([last.logprobs, message.logprobs]),
            )
        else:
            parts.append(message)
    return parts


def _follows(last: Grow, grow: Grow) -> bool:
    """Whether two messages about one tree can be one."""
    return (grow.session, grow.root_position, grow.first_id) == (
        last.session,
        last.root_position,
        last.first_id + len(last.tokens),
    )
