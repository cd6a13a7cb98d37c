"""What a worker's server process and its engine process say to each other.

The engine knows token ids, sessions and rows; text, gRPC and addresses stay with the server.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_DEPTH, PolicySettings
from outrider.worker.sampling.params import SamplingParams


class Finish(enum.Enum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"
    EXPIRED = "expired"
    """It waited for longer than it may."""
    UNFORMED = "unformed"
    """The answer cannot be kept in the form that its request asks for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a role says of itself."""

    revision: str
    incarnation: int
    context: int
    vocabulary: int
    hashes: NDArray[np.uint64]
    """[blocks] of the id to bytes map."""
    outputs: tuple[int, ...] = ()
    """Ids that it can output in each block; empty means all. Only a draft's count."""
    sessions: int = 0
    """Draft only: room for sessions."""


@dataclass(slots=True)
class Usage:
    """What one answer cost; the fields are those of the proto message."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    passes: int = 0
    draft_rows: int = 0
    accepted_rows: int = 0
    passes_with_nodes: int = 0
    first_guesses: int = 0
    first_hits: int = 0
    cached_prompt_tokens: int = 0


@dataclass(slots=True)
class Timing:
    """Where the time of one answer went, in seconds."""

    queued_seconds: float = 0.0
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0
    decode_seconds: float = 0.0
    plain_seconds: float = 0.0
    draft_wait_seconds: float = 0.0


@dataclass(slots=True)
class Counters:
    """Counters since the engine started; the fields are those of the proto message."""

    requests_finished: int = 0
    requests_cancelled: int = 0
    tokens: int = 0
    passes: int = 0
    draft_rows: int = 0
    accepted_rows: int = 0
    plain_seconds: float = 0.0
    spent_seconds: float = 0.0
    draft_wait_seconds: float = 0.0
    growth_dropped: int = 0
    kv_slots_used: int = 0
    drafting_seconds: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    kv_slots: int = 0
    wait_gain_predicted: float = 0.0
    wait_gain_realised: float = 0.0
    requests_at_length: int = 0
    requests_failed: int = 0
    requests_expired: int = 0
    generation_tokens: int = 0
    drafted_passes: int = 0
    first_guesses: int = 0
    first_hits: int = 0
    passes_by_accepted: list[int] = field(default_factory=lambda: [0] * (MAX_DEPTH + 1))
    steps: int = 0
    step_rows: int = 0


@dataclass(frozen=True, slots=True)
class Submit:
    """To a target's engine: answer this."""

    request: int
    prompt: NDArray[np.int32]
    sampling: SamplingParams
    max_tokens: int
    end_ids: tuple[int, ...]
    speculate: bool
    arrived: float
    """`time.monotonic()` at the server."""
    priority: int = 0
    """Higher ones start first."""
    start_by: float = math.inf
    """Ends unrun if it has not started by then."""
    logprobs: int | None = None
    """How many likeliest tokens are wanted beside each token's own log-probability; None: no
    log-probabilities at all."""
    grammar: str = ""
    """What form the answer must have, as llguidance reads it; empty: any."""
    traceparent: str = ""
    """Its span, for drafts; empty: not traced."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """To a target's engine: nobody waits for more of this request."""

    request: int
    finish: Finish = Finish.CANCELLED
    """How it counts: a stop string was found, or nobody waits for any of it."""


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """To an engine: a newer policy."""

    policy: PolicySettings


@dataclass(frozen=True, slots=True)
class SetDrafts:
    """To a target's engine process: keep a link to each of these drafts."""

    identity: Identity
    """What the target says of itself."""
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkStates:
    """From a target's engine process: how its links stand, one serialised `Link` each."""

    links: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """To a draft's engine: close every session and take no more."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a draft's Hello says that it can take."""

    sessions: int
    context: int
    """Most tokens of one session."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """To an engine: a stream to a peer works."""

    link: int
    allowed: NDArray[np.bool_]
    """[vocabulary] ids on which both tokenizers agree."""
    room: Room | None = None
    """Of the draft; None where the peer is a target, or a draft that says by `Close` alone."""


@dataclass(frozen=True, slots=True)
class LinkDown:
    """To an engine: a stream to a peer ended, and its sessions with it."""

    link: int


@dataclass(frozen=True, slots=True)
class FromPeer:
    """To an engine: messages of the peer, in order."""

    link: int
    messages: Sequence[Any]
    """`wire.FromTarget` or `wire.FromDraft`."""


@dataclass(frozen=True, slots=True)
class ToPeer:
    """From an engine: messages for the peer, in order; they travel together if they can."""

    link: int
    messages: Sequence[Any]
    """`wire.FromTarget` or `wire.FromDraft`."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From an engine, once: the model is loaded and measured."""

    dtype: str
    step_seconds: dict[int, float]
    sessions: int
    context: int
    kv_bytes: int
    prefix_cache: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """From an engine while it starts."""

    stage: str


@dataclass(frozen=True, slots=True)
class Failed:
    """From an engine that cannot start."""

    detail: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a committed token was under the model's own distribution."""

    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens at its place and their log-probabilities, best first."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """From a target's engine: tokens were committed."""

    request: int
    ids: tuple[int, ...]
    passes: int = 1
    """That brought them."""
    likelihoods: tuple[TokenLogprob, ...] = ()
    """Of each token, if the request asks for them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """From a target's engine, once for each request that was submitted."""

    request: int
    finish: Finish
    usage: Usage
    timing: Timing
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """From a draft's engine, once for each session whose target traces it."""

    traceparent: str
    opened: float
    """`time.monotonic()`."""
    passes: int
    rows: int
    nodes: int
    """That were sent."""
    tokens: int
    """That were committed since it was opened."""
    reason: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """From an engine, a few times a second while it works."""

    counters: Counters = field(default_factory=Counters)
    running: int = 0
    waiting: int = 0
    draining: bool = False
    """A draft only: it has closed every session and takes no more."""
    drafting: str = ""
    """A target only: what the switch wants, or `disabled` by the policy."""
    last_rows: int = 0
    """A target only: rows of its last pass."""
    last_node_rows: int = 0
    """A target only: node rows among them."""
