"""Messages of the link between a target and a draft, as plain types.

Leaves their bytes to `draft_records`; when each is sent is decided in `target.sessions` and
`draft.scheduler`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth


class CloseReason(enum.Enum):
    """Reason for the end of a session, by its number in a record."""

    FINISHED = 1
    """The target's reason: the sequence finished or was cancelled."""
    EVICTED = 2
    """The draft's reason: its memory was needed; open elsewhere."""
    DRAINING = 3
    """The draft's reason: it is shutting down; open elsewhere."""
    OVERLOADED = 4
    """The draft's reason: it has too many sessions; open elsewhere and back off."""
    TOO_LONG = 5
    """The draft's reason: the sequence outgrew its context; do not retry."""
    INVALID = 6
    """Either side's reason: the other broke the protocol; the detail says how."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on how far the draft may run ahead."""

    session: int
    depth: int
    width: int
    nodes_ahead: int
    error_scale: float
    link_lag_micros: int = 0


@dataclass(frozen=True, slots=True)
class Open:
    """Request of a session for one sequence."""

    session: int
    tokens: NDArray[np.int32]
    sampling: SamplingParams
    limits: Limits
    prompt: int
    """Number of tokens that were given, not sampled; it may be more than there are."""
    traceparent: str = ""
    """The request's span, as W3C's header has it; empty: not traced."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that were committed after the root at `position`."""

    session: int
    position: int
    tokens: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Grow:
    """Nodes of one draft pass, or of several that follow one another."""

    session: int
    growth: Growth


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room of a draft for more sessions."""

    sessions: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Close:
    """End of a session; of the whole stream for session 0."""

    session: int
    reason: CloseReason
    detail: str = ""


FromTarget = Open | Commit | Limits | Close
FromDraft = Grow | Capacity | Close


def joined(messages: Sequence[FromDraft]) -> list[FromDraft]:
    """Return the same messages, with growth of one tree that follows on as one `Grow`."""
    parts: list[FromDraft] = []
    for message in messages:
        last = parts[-1] if parts else None
        if isinstance(last, Grow) and isinstance(message, Grow) and _follows(last, message):
            parts[-1] = Grow(last.session, _concatenated(last.growth, message.growth))
        else:
            parts.append(message)
    return parts


def _follows(last: Grow, grow: Grow) -> bool:
    """True if two messages about one tree can be one."""
    before, after = last.growth, grow.growth
    return (grow.session, after.root_position, after.first_id) == (
        last.session,
        before.root_position,
        before.first_id + len(before.tokens),
    )


def _concatenated(first: Growth, second: Growth) -> Growth:
    return first._replace(
        parents=np.concatenate([first.parents, second.parents]),
        tokens=np.concatenate([first.tokens, second.tokens]),
        logprobs=np.concatenate([first.logprobs, second.logprobs]),
    )
