"""One session of a draft: the committed tokens, the tree and the limits of a target's sequence.

Leaves what runs when to `scheduler`, the tree's own rules to `tree`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_DEPTH
from outrider.kernels.sampling.penalties import Adjuster
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.engine.runner import ChildRules
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.link.wire import CloseReason, Limits, Open
from outrider.worker.messages import SessionEnded
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.growth import Ints

BRANCH = 8
"""Top children of each expanded leaf."""
MEMORY = 0.9
"""Weight of the past in a running mean."""
MAX_NEW_NODES = 8
"""Nodes made after one pass."""
MIN_NEW_NODES = 4
LOOKAHEAD_PASSES = 6
"""Passes that the nodes ahead should last for beyond a long link's lag."""
MIN_PASS_SECONDS = 0.0005
LONG_LINK_STEPS = 1.5
"""A link that lags by more of the target's steps than this prefers depth."""
DEPTH_BONUS = 1.0
"""What one level then adds to a score: about what a likely token takes away."""


@dataclass(slots=True)
class RunningMean:
    """Exponential moving average, from 0 on."""

    value: float = 0.0

    def add(self, value: float) -> None:
        """Weigh in one more value."""
        self.value += (1 - MEMORY) * (value - self.value)


@dataclass(slots=True)
class SessionTrace:
    """Figures of a session's span that the session itself does not keep."""

    traceparent: str
    opened: float
    length: int
    """Tokens that it was opened with."""
    passes: int = 0
    rows: int = 0

    @classmethod
    def of(cls, opening: Open, now: float) -> "SessionTrace | None":
        """Return None if the session's target does not trace it."""
        if not opening.traceparent:
            return None
        return cls(opening.traceparent, now, len(opening.tokens))

    def ended(self, session: "DraftSession", reason: CloseReason | None) -> SessionEnded:
        """Return the record for the server process; no reason means that the link ended."""
        return SessionEnded(
            traceparent=self.traceparent,
            opened=self.opened,
            passes=self.passes,
            rows=self.rows,
            nodes=session.tree.last_id,
            tokens=session.tree.target_position + 1 - self.length,
            reason="link ended" if reason is None else reason.name.lower(),
        )


@dataclass(slots=True, eq=False)
class DraftSession:
    """One session: a sequence of some target, as this draft knows it."""

    link: int
    number: int
    block_table: BlockTable
    tokens: NDArray[np.int32]
    """[context + 1] committed tokens as the draft's ids, then room."""
    limits: Limits
    rules: ChildRules
    """Replaced when its limits change them."""
    tree: DraftTree
    last_commit: float
    """Time of its last commit, or of its opening."""
    step_seconds: RunningMean = field(default_factory=RunningMean)
    """Time between two commits."""
    growths: int = 0
    """Growths of the present tree, from the last fall-out on."""
    returns: bool = False
    """True while it catches up after a rest."""
    trace: "SessionTrace | None" = None
    """Figures of its span; None: its target does not trace it."""

    @property
    def length(self) -> int:
        """Number of committed tokens, as the draft's ids."""
        return self.tree.root_position + 1

    @property
    def has_long_link(self) -> bool:
        """True if the link lags so much that growth should prefer depth."""
        lag = self.limits.link_lag_micros * 1e-6
        return lag > LONG_LINK_STEPS * self.step_seconds.value > 0

    @property
    def depth_bonus(self) -> float:
        """Preference of depth, in log-probability a level."""
        return DEPTH_BONUS if self.has_long_link else 0.0

    @property
    def may_grow(self) -> bool:
        """True if nodes that a pass adds may be sent."""
        most = self.limits.nodes_ahead
        return most > 0 and (len(self.tree) < most or self.needs_prefill)

    @property
    def needs_pass(self) -> bool:
        """True if a pass could add nodes that may be sent."""
        has_work = self.needs_prefill or self.tree.has_leaves(self.depth_limit)
        return self.may_grow and has_work

    @property
    def depth_limit(self) -> int:
        """Depth that no node exceeds."""
        return min(self.limits.depth, MAX_DEPTH)

    @property
    def needs_prefill(self) -> bool:
        """True while committed tokens lack KV; unlike a target's, a draft's prefill runs the root
        too.
        """
        return not self.tree.root_expanded

    @property
    def uncomputed_tokens(self) -> int:
        """Number of committed tokens, the root's among them, without KV."""
        return self.length - self.tree.cached

    @property
    def room(self) -> int:
        """Slots that its tokens and all of its nodes need."""
        return self.length + len(self.tree)

    def max_new_nodes(self, pass_seconds: float) -> int:
        """Return the nodes for one pass; with a long link fewer, or all would be near the root."""
        if not self.has_long_link:
            return MAX_NEW_NODES
        lag, seconds = self.limits.link_lag_micros * 1e-6, max(pass_seconds, MIN_PASS_SECONDS)
        passes = lag / seconds + LOOKAHEAD_PASSES
        return min(MAX_NEW_NODES, max(MIN_NEW_NODES, int(self.limits.nodes_ahead / passes)))

    def count_pass(self, rows: int) -> None:
        """Count a pass with so many of its rows in its trace."""
        if self.trace is not None:
            self.trace.passes += 1
            self.trace.rows += rows


class DraftTerms(NamedTuple):
    """Bounds within which a session grows in compiled code."""

    nodes_ahead: int
    width: int
    depth: int
    least: float
    """Score as of `DraftScheduler.least_score`."""
    max_new_nodes: int
    prefill_rows: int
    """Most rows of prefill in one pass."""
    room: int
    """Offsets of its block table."""
    published: int
    """Blocks of it that may not be written."""
    most_tokens: int
    """Committed tokens that it can hold."""


def rules_for(opening: Open, tokens: TargetTokens) -> ChildRules:
    """Return the rules of a new session."""
    scale, adjuster = opening.limits.error_scale, _adjuster_for(opening, len(tokens.allowed))
    return ChildRules(opening.sampling, scale, BRANCH, tokens.allowed, adjuster, tokens.translation)


def _adjuster_for(opening: Open, vocabulary: int) -> Adjuster | None:
    """Return a session's penalties and biases, if any; token ids are below `vocabulary`."""
    if not opening.sampling.adjusts:
        return None
    adjuster = Adjuster(vocabulary, opening.sampling)
    adjuster.add_prompt(opening.tokens[: opening.prompt])
    adjuster.add_answer(opening.tokens[opening.prompt :])
    return adjuster


def in_range(tokens: Ints, vocabulary: int) -> bool:
    """True if every token is an id of the target's vocabulary."""
    listed = tokens.tolist()  # mostly one or two: a tenth of what numpy takes
    return not listed or (min(listed) >= 0 and max(listed) < vocabulary)


def check_limits(limits: Limits) -> None:
    """Raise `ProtocolViolation` for limits that no draft could keep."""
    if not (np.isfinite(limits.error_scale) and limits.error_scale > 0):
        raise ProtocolViolation(f"error scale {limits.error_scale} is not a positive number")
    if limits.nodes_ahead > 0 and limits.width == 0:
        raise ProtocolViolation("a width of 0 leaves cannot grow any nodes")
