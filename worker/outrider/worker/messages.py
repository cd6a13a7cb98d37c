"""Messages between a worker's server and its engine.

The engine knows token ids, sessions and rows; text, gRPC and addresses stay with the server.
"""

import enum
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.inference import STREAM_INTERVAL_MS, Timing, Usage
from outrider.contract.settings import (
    LinkTransport,
    PeerSettings,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.contract.state import (
    EngineWork,
    Link,
    SegmentTotals,
    StageLayers,
    StageTotals,
    TimelineSpan,
)
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.translation import Translation
from outrider.worker.errors import WorkerError
from outrider.worker.sampling.params import SamplingParams

NO_KEY = -1
"""Key of a request to a target without API keys that others than its own machine reach."""
ONE_KEY = 0
"""Key of every request to a target without API keys on loopback: all are of one user."""


class Finish(enum.Enum):
    """Reason for which a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"
    EXPIRED = "expired"
    """It waited for longer than it may."""
    GRAMMAR_FAILED = "unformed"
    """The answer cannot follow the grammar of its response format."""
    STAGES_MISSING = "missing"
    """A stage of its pipelined target was gone for as long as it could wait."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Model and limits of one role, by which it is paired with its peer."""

    revision: str
    incarnation: int
    context: int
    vocabulary: int
    hashes: NDArray[np.uint64]
    """[blocks] of the id to bytes map."""
    outputs: tuple[int, ...] = ()
    """Ids that it can output in each block; empty means all. Only a draft's matter."""
    sessions: int = 0
    """Draft only: room for sessions."""
    link: LinkTransport = LinkTransport.AUTO
    """What its settings name to carry the messages of links."""
    link_dir: str | None = None
    """Folder in which it meets peers of its machine; None: it shares no memory."""
    peers: PeerSettings | None = None
    """Certificates that links beyond loopback are made with; None: without."""
    model: PreparedModel | None = None
    """Where its tokens are read for a peer of another tokenizer; None: it refuses such a peer."""

    @property
    def shares_memory(self) -> bool:
        """True if its links may go through shared memory."""
        may = self.link in (LinkTransport.AUTO, LinkTransport.SHARED_MEMORY)
        return self.link_dir is not None and may

    @property
    def distributed(self) -> bool:
        """True if its links go through torch.distributed."""
        return self.link is LinkTransport.DISTRIBUTED


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
    """Number of likeliest tokens wanted beside each token's own log-probability; None: no
    log-probabilities at all."""
    grammar: str = ""
    """Grammar of the request's response format, as llguidance reads it; empty: none."""
    traceparent: str = ""
    """Its span, for drafts; empty: not traced."""
    stream_seconds: float = STREAM_INTERVAL_MS / 1000
    """Least time between two `Tokens` messages."""
    key: int = NO_KEY
    """Number of the API key that it came with; others see nothing of its answer."""
    shows_tree: bool = False
    """Whether its `Tokens` say what the last pass verified."""
    ends_by_text: bool = False
    """Whether its text may end it, as a stop string does: its answer is then cut and counted by the
    server, where text is."""
    prediction: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Answer that its client expects, a source of draft tokens; empty: none."""
    cut_prediction_tokens: int = 0
    """Tokens of it that were left out."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """To a target's engine: end this request."""

    request: int
    finish: Finish = Finish.CANCELLED
    """Reason to count: a stop string was found, or the caller has gone."""


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """To an engine: a newer policy."""

    policy: PolicySettings


@dataclass(frozen=True, slots=True)
class SetDrafts:
    """To a target's engine process: keep a link to each of these drafts."""

    identity: Identity
    """Identity of the target."""
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkStates:
    """From a target's engine process: the state of each of its links."""

    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class StageGroupState:
    """From a pipelined target's engine: whether its stages run as one."""

    up: bool
    detail: str = ""
    """For people: which stage is missing and why, if one is."""
    losses: int = 0
    """Groups that have ended since the engine started."""
    link: str = ""
    """What carries records."""
    stages: tuple[StageLayers, ...] = ()
    """Layers of the stages of the last group that was up."""


class StageVisit(NamedTuple):
    """What one stage did to a segment; times are those of `time.monotonic()` here."""

    rows: int
    """Computed."""
    came: float
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class SegmentTraced:
    """From a pipelined target's engine: a segment with rows of a traced request is back."""

    request: int
    segment: int
    """Its number."""
    first_row: int
    """Number of the request's first row in it."""
    rows: int
    """Number of the request's rows in the segment."""
    segment_rows: int
    sent: float
    """`time.monotonic()`, as are those of the visits."""
    back: float
    visits: tuple[StageVisit, ...]
    """Visits of the segment to all stages."""


MAX_TIMELINE_SPANS = 8192
"""Most spans of one worker: those of half a minute of two stages that take 10 ms a segment each."""


@dataclass(frozen=True, slots=True)
class AskTimeline:
    """To an engine: send the `Timeline`."""


@dataclass(frozen=True, slots=True)
class AskAlive:
    """To an engine: send `Alive` before the next pass."""


@dataclass(frozen=True, slots=True)
class Alive:
    """From an engine that was asked: its loop goes round."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """From an engine that was asked: what it computed lately."""

    spans: tuple[TimelineSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """To an engine that is not told yet how to run: send `Measured`; the fields are those of the
    proto message, with prompts as token ids."""

    threads: int
    processors: tuple[int, ...] = ()
    passes: tuple[tuple[Role, int], ...] = ()
    """Whose pass, and over how many rows."""
    seconds: float = 0.0
    prompts: tuple[tuple[int, ...], ...] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """From an engine that was asked to measure; the fields are those of the proto message."""

    seconds: tuple[float, ...] = ()
    guesses: int = 0
    hits: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Arrange:
    """To an engine that is not told yet how to run: build it by these settings."""

    settings: WorkerSettings


@dataclass(frozen=True, slots=True)
class Drain:
    """To a draft's engine: close every session and take no more."""


@dataclass(frozen=True, slots=True)
class Room:
    """Room of a draft, from its Hello."""

    sessions: int
    context: int
    """Most tokens of one session."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """To an engine: a stream to a peer works."""

    link: int
    allowed: NDArray[np.bool_]
    """[the target's vocabulary] ids that may be draft tokens."""
    room: Room | None = None
    """Room of the draft; None where the peer is a target, or a draft without room in its Hello."""
    translation: Translation | None = None
    """To a draft of another tokenizer; None to others."""


@dataclass(frozen=True, slots=True)
class LinkDown:
    """To an engine: a stream to a peer ended, and its sessions with it."""

    link: int


@dataclass(frozen=True, slots=True)
class DirectLinkUp:
    """To an engine's transport: a link to a peer works, and the engine itself reads and writes
    it."""

    up: LinkUp
    direct: Any
    """A `link.shared_memory.SharedMemoryLink`; the transport's from now on."""


@dataclass(frozen=True, slots=True)
class DirectLinkLost:
    """From an engine's transport: a direct link of it has ended; its stream has to."""

    link: int
    error: WorkerError


@dataclass(frozen=True, slots=True)
class FromPeer:
    """To an engine: messages of the peer, in order."""

    link: int
    messages: Sequence[Any]
    """`wire.FromTarget` or `wire.FromDraft`."""
    arrived: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at which they came to this process, whenever its engine looked."""


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
    path_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of the role's mean pass, by each numeric path that `dtype: auto` chose from."""
    longest_pass: float = 0.0
    """Seconds of the largest pass, as measured; 0: this engine's passes are run by others."""
    refused_draft: str = ""
    """Why the draft in this process is not used; empty: it is, or there is none."""


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
    """Log-probability of a committed token in the model's own distribution."""

    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens at its place and their log-probabilities, best first."""


class PassTree(NamedTuple):
    """The tree that a pass verified for one sequence, by row: the root, then nodes."""

    tokens: tuple[int, ...]
    """Tokens of all rows."""
    parents: tuple[int, ...]
    """Row of each node's parent."""
    accepted: tuple[int, ...]
    """Rows of the nodes that were committed."""
    following: int
    """The target's own token, after the last of them."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """From a target's engine: tokens were committed."""

    request: int
    ids: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    """Number of them that each pass committed."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Log-probability of each token, if the request asks for them."""
    tree: PassTree | None = None
    """Tree of one of the passes behind `ids`, mostly the last, if the request asks for it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call, without the field by field copy of dataclasses: the one message that
        is sent all the time."""
        return Tokens, (self.request, self.ids, self.sizes, self.logprobs, self.tree)

    @property
    def passes(self) -> int:
        """Passes that committed them."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Finished:
    """From a target's engine, once for each request that was submitted."""

    request: int
    finish: Finish
    usage: Usage
    timing: Timing
    detail: str = ""
    planned: str = ""
    """The `Choice` of the last step that decoded."""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """From a draft's engine, once for each session whose target traces it."""

    traceparent: str
    opened: float
    """`time.monotonic()`."""
    passes: int
    rows: int
    nodes: int
    """Nodes that were sent."""
    tokens: int
    """Tokens that were committed since the session was opened."""
    reason: str


@dataclass(frozen=True, slots=True)
class EngineReport(EngineWork):
    """From an engine, a few times a second while it works."""

    draining: bool = False
    """A draft only: it has closed every session and takes no more."""
    segments: SegmentTotals | None = None
    """A pipelined target only."""
    stages: tuple[StageTotals, ...] = ()
    """A pipelined target only."""
