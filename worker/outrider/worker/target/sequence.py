"""Sequence: the state of one request in a target, its committed tokens, KV and mirror.

Derived numbers are properties. Leaves every decision to `target/scheduler`.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.handle import handle
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.messages import Submit, Timing, TokenLogprob, Usage
from outrider.worker.sampling.logits_processor import LogitsProcessor
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.target.pass_arrays import PassArrays, PassViews
from outrider.worker.target.tree_pass import TreeHandle, TreeTables
from outrider.worker.tree.mirror import Mirror


@dataclass(slots=True)
class TargetSession:
    """One sequence's session on a draft."""

    link: int
    number: int
    granted: int
    """Highest nodes ahead that this session was ever allowed."""
    error_scale: float
    """As last sent."""
    nodes_ahead: int
    """As last sent."""
    lag: float = 0.0
    """As last sent."""
    shape: tuple[int, int] = (0, 0)
    """Depth and width, as last sent."""
    asked: tuple[int, float] | None = None
    """Root position and time of a commit that no growth has acknowledged yet."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request and its tokens."""

    submit: Submit
    tokens: NDArray[np.int32]
    """[context] the committed tokens, to which the mirror's commits add; then room."""
    length: int
    """Committed tokens."""
    mirror: Mirror
    calibration: Calibration
    ends: NDArray[np.int32]
    """Tokens that end it."""
    logits_processor: LogitsProcessor | None = None
    """Its penalties, logit bias and grammar; None if it has none."""
    block_table: BlockTable | None = None
    """Its KV; None while it waits."""
    started: bool = False
    """True once it has had any."""
    computed: int = 0
    """Committed tokens that have KV; `length - 1` after prefill."""
    session: TargetSession | None = None
    not_before: dict[int, float] = field(default_factory=dict)
    """By link: earliest time to open another session on it, after its draft closed one."""
    first_token: float = 0.0
    last_token: float = 0.0
    committed_at: float = 0.0
    """When the root last moved, or the last prefill chunk before it ran."""
    growths: int = 0
    """Times at which growth came that knew the present root."""
    grew_at: float = 0.0
    """The latest of them."""
    survived: bool = False
    """True if the present root was in the mirror: a fall-in."""
    unsent: list[int] = field(default_factory=list)
    """Committed tokens that the client has not been sent."""
    unsent_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Of each of them, if the request asks for log-probabilities."""
    unsent_passes: int = 0
    """Passes that committed them."""
    sent_at: float = 0.0
    """When the client was last sent tokens."""
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    prompt_length: int = field(init=False)
    """Tokens of the prompt."""
    most_tokens: int = field(init=False)
    """Committed tokens at which it ends."""
    tree: TreeHandle = field(init=False)
    """Arrays of mirror, calibration and passes, for compiled code."""
    views: PassViews = field(init=False)
    """Those of passes, for everything else."""

    def __post_init__(self) -> None:
        self.prompt_length = len(self.submit.prompt)
        self.most_tokens = self.prompt_length + self.submit.max_tokens
        own, average = self.calibration.curves, self.calibration.average
        arrays = PassArrays.empty(len(self.mirror.tables.nodes.parent))
        self.tree = handle(TreeTables(self.mirror.tables, own, average, self.ends, arrays))
        self.views = PassViews(arrays)

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

    @property
    def needs_prefill(self) -> bool:
        """True if tokens before the root lack KV; the root itself gets its own in a verify pass."""
        return self.computed < self.length - 1

    @property
    def kv(self) -> BlockTable:
        """Block table of a sequence that is admitted."""
        assert self.block_table is not None
        return self.block_table

    def admit(self, block_table: BlockTable, now: float) -> None:
        """Take KV, some of which may hold tokens already."""
        self.block_table, self.computed = block_table, block_table.cached
        if not self.started:
            self.started = True
            self.usage.cached_prompt_tokens = block_table.cached
            self.timing.queued_seconds = now - self.submit.arrived
        self.committed_at = now

    def append(self, tokens: NDArray[np.int32], survived: bool, now: float) -> None:
        """Count tokens that the mirror has committed, and reset what is counted for each root."""
        if self.logits_processor is not None:
            self.logits_processor.commit(tokens)
        self.length += len(tokens)
        self.survived = survived
        self.committed_at = now
        self.growths = 0

    def finish(self, now: float) -> None:
        """Set the final usage and timing."""
        self.usage.completion_tokens = self.generated
        self.timing.total_seconds = now - self.submit.arrived
        if self.generated:
            self.timing.first_token_seconds = self.first_token - self.submit.arrived
            self.timing.decode_seconds = self.last_token - self.first_token

    def committed(self) -> NDArray[np.int32]:
        """Return a copy of all committed tokens."""
        return self.tokens[: self.length].copy()
