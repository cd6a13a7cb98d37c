"""Request of a target, whatever runs its passes: its text and tree, tokens that its client has not
been sent, its cost, its draft's session.

Leaves KV and rows to the sequences of a target in one piece and of a pipelined one.
"""

import abc
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.inference import Timing, Usage
from outrider.worker.messages import Finish, Finished, PassTree, Submit, TokenLogprob, Tokens
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.tree.mirror import Mirror

ALONG = 0.5
"""Share of its interval after which an answer's tokens go along with those of another: soon all
answers have their messages in the same passes, and the server is woken once for all of them."""


@dataclass(slots=True)
class TargetSession:
    """One sequence's session on a draft."""

    link: int
    number: int
    granted: int
    """Highest nodes ahead that this session was ever allowed."""
    error_scale: float
    """Error scale, as last sent."""
    nodes_ahead: int
    """Nodes ahead, as last sent."""
    lag: float = 0.0
    """Lag in seconds, as last sent."""
    shape: tuple[int, int] = (0, 0)
    """Depth and width, as last sent."""
    told: int = 0
    """Position of the last committed token that its draft was sent."""
    level_at: int | None = None
    """Root position that the draft must have reached to be level again after a rest; None: it
    is."""
    asked: tuple[int, float] | None = None
    """Root position and time of a commit that no growth has acknowledged yet."""
    grown: bool = False
    """True once its draft has grown: it has computed the text up to there."""
    behind: tuple[float, int] | None = None
    """Since when its draft computes text before it can grow, and how many tokens of it; None: it
    has computed all."""


@dataclass(slots=True, eq=False)
class Request(abc.ABC):
    """One request and its tokens."""

    submit: Submit
    tokens: NDArray[np.int32]
    """[most] the committed tokens, to which the mirror's commits add; then room."""
    length: int
    """Committed tokens."""
    mirror: Mirror
    calibration: Calibration
    ends: NDArray[np.int32]
    """Tokens that end it."""
    _: KW_ONLY
    started: bool = False
    """True once its sequence has had KV."""
    session: TargetSession | None = None
    not_before: dict[int, float] = field(default_factory=dict)
    """Earliest time to open another session on a link, after its draft closed one; by link."""
    first_token: float = 0.0
    last_token: float = 0.0
    committed_at: float = 0.0
    """When the root last moved, or the last prefill chunk before it ran."""
    growths: int = 0
    """Times at which growth came that knew the present root."""
    grew_at: float = 0.0
    """The latest of them."""
    unsent: list[int] = field(default_factory=list)
    """Committed tokens that the client has not been sent."""
    unsent_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Log-probability of each unsent token, if the request asks for it."""
    unsent_sizes: list[int] = field(default_factory=list)
    """Number of them that each pass committed."""
    unsent_tree: PassTree | None = None
    """Tree of the last unsent pass that was a step with nodes, if the request asks for it."""
    sent_at: float = 0.0
    """When the client was last sent tokens."""
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    prompt_length: int = field(init=False)
    """Tokens of the prompt."""
    most_tokens: int = field(init=False)
    """Committed tokens at which it ends."""

    def __post_init__(self) -> None:
        self.prompt_length = self.usage.prompt_tokens = len(self.submit.prompt)
        self.most_tokens = self.prompt_length + self.submit.max_tokens
        cut = self.usage.cut_prediction_tokens = self.submit.cut_prediction_tokens
        self.usage.prediction_tokens = len(self.submit.prediction) + cut

    @property
    @abc.abstractmethod
    def needs_prefill(self) -> bool:
        """True if tokens before the root have no KV and are in no pass."""

    @property
    def position(self) -> int:
        """Position of the root."""
        return self.length - 1

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return self.length - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.most_tokens - self.length

    def committed(self) -> NDArray[np.int32]:
        """Return a copy of all committed tokens."""
        return self.tokens[: self.length].copy()

    def drop_session(self) -> None:
        """Forget the session, and the ids of its nodes."""
        self.session = None
        self.mirror.detach()

    def start(self, cached: int, now: float) -> None:
        """Note that it runs for the first time, with KV of `cached` tokens that were there."""
        self.started = True
        self.usage.cached_prompt_tokens = cached
        self.timing.queued_seconds = now - self.submit.arrived
        self.committed_at = now

    def take(self, ids: list[int], first: bool, now: float) -> None:
        """Take the tokens of one pass for the client; `first`: they begin the answer."""
        if first:
            self.first_token = now
        self.last_token = now
        self.unsent += ids
        self.unsent_sizes.append(len(ids))

    def send_tokens(self, outbox: list[Any], now: float) -> None:
        """Send the server the tokens committed since the last message."""
        ids, sizes = tuple(self.unsent), tuple(self.unsent_sizes)
        logprobs, tree = tuple(self.unsent_logprobs), self.unsent_tree
        outbox.append(Tokens(self.submit.request, ids, sizes, logprobs, tree))
        self.unsent, self.unsent_sizes, self.sent_at = [], [], now
        self.unsent_logprobs, self.unsent_tree = [], None

    def send_end(
        self,
        finish: Finish,
        outbox: list[Any],
        now: float,
        detail: str = "",
        planned: str = "",
    ) -> None:
        """Send the server the last tokens, then the end with final usage and timing.

        `planned`: as in `Finished`.
        """
        if self.unsent:
            self.send_tokens(outbox, now)
        self.usage.completion_tokens = self.generated
        self.timing.total_seconds = now - self.submit.arrived
        if self.generated:
            self.timing.first_token_seconds = self.first_token - self.submit.arrived
            self.timing.decode_seconds = self.last_token - self.first_token
        request = self.submit.request
        outbox.append(Finished(request, finish, self.usage, self.timing, detail, planned))


def stream(requests: Collection[Request], outbox: list[Any], now: float) -> None:
    """If an answer's tokens are due, send them, and those along that soon will be."""
    for request in requests:
        if request.unsent and now - request.sent_at >= request.submit.stream_seconds:
            _send_along(requests, outbox, now)
            return


def _send_along(requests: Collection[Request], outbox: list[Any], now: float) -> None:
    for request in requests:
        if request.unsent and now - request.sent_at >= ALONG * request.submit.stream_seconds:
            request.send_tokens(outbox, now)
