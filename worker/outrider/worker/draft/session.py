"""One session of a draft: the committed tokens, the tree and the limits of some target's sequence.

What runs when is `draft_scheduler`'s to say; the tree keeps itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.penalties import Adjuster
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_table import BlockTable
from outrider.worker.link.wire import CloseReason, Limits, Open
from outrider.worker.messages import SessionEnded
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.walk import Ints

FAN = 8
"""Nodes made after one pass."""
MIN_FAN = 4
LOOKAHEAD_PASSES = 6
"""Passes that the nodes ahead should last for beyond a long link's lag."""
MIN_PASS_SECONDS = 0.0005
LONG_LINK_STEPS = 1.5
"""A link that lags by more of the target's steps than this prefers depth."""
DEPTH_BONUS = 1.0
"""What one level then adds to a score: about what a likely token takes away."""


@dataclass(slots=True)
class SessionTrace:
    """What a session's span says beyond what the session knows."""

    traceparent: str
    opened: float
    length: int
    """Tokens that it was opened with."""
    passes: int = 0
    rows: int = 0

    @classmethod
    def of(cls, opening: Open, now: float) -> "SessionTrace | None":
        """None if its target does not trace it."""
        if not opening.traceparent:
            return None
        return cls(opening.traceparent, now, len(opening.tokens))

    def ended(self, session: "DraftSession", reason: CloseReason | None) -> SessionEnded:
        """The record for the server process; no reason means that the link ended."""
        return SessionEnded(
            traceparent=self.traceparent,
            opened=self.opened,
            passes=self.passes,
            rows=self.rows,
            nodes=session.tree.last_id,
            tokens=session.length - self.length,
            reason="link ended" if reason is None else reason.name.lower(),
        )


@dataclass(slots=True, eq=False)
class DraftSession:
    """One session: a sequence of some target, as this draft knows it."""

    link: int
    number: int
    block_table: BlockTable
    tokens: NDArray[np.int32]
    """[context + 1] committed tokens, then room."""
    length: int
    sampling: SamplingParams
    limits: Limits
    tree: DraftTree
    heard: float
    """When it was opened or its last commit came."""
    adjuster: Adjuster | None = None
    """The sequence's penalties and biases; None if there are none."""
    step_seconds: float = 0.0
    """Running mean of the time between two commits."""
    growths: int = 0
    """Of the present tree, from the last fall-out on."""
    trace: "SessionTrace | None" = None
    """What its span will say; None: its target does not trace it."""

    @property
    def has_long_link(self) -> bool:
        """Whether the link lags so much that growth should prefer depth."""
        return self.limits.link_lag_micros * 1e-6 > LONG_LINK_STEPS * self.step_seconds > 0

    @property
    def depth_bonus(self) -> float:
        """By how much growth prefers depth, in log-probability a level."""
        return DEPTH_BONUS if self.has_long_link else 0.0

    @property
    def needs_pass(self) -> bool:
        """Whether a pass could add something that may be sent."""
        if self.limits.nodes_ahead == 0:
            return False
        has_room = len(self.tree) < self.limits.nodes_ahead
        return self.needs_prefill or (has_room and len(self.leaves(1)) > 0)

    @property
    def needs_prefill(self) -> bool:
        """Whether committed tokens, the root's among them, still have to be run."""
        return not self.tree.root_expanded

    @property
    def uncomputed_tokens(self) -> int:
        """Committed tokens, the root's among them, that still have to be run."""
        return self.length - self.tree.cached

    @property
    def room(self) -> int:
        """Offsets that its tokens and all of its nodes need."""
        return self.length + len(self.tree)

    def leaves(self, width: int) -> Ints:
        """The best leaves that may be expanded."""
        return self.tree.leaves(width, self.limits.depth)

    def max_new_nodes(self, pass_seconds: float) -> int:
        """Nodes for one pass; with a long link fewer, or all would be spent near the root."""
        if not self.has_long_link:
            return FAN
        lag, seconds = self.limits.link_lag_micros * 1e-6, max(pass_seconds, MIN_PASS_SECONDS)
        passes = lag / seconds + LOOKAHEAD_PASSES
        return min(FAN, max(MIN_FAN, int(self.limits.nodes_ahead / passes)))


def adjuster_for(opening: Open, vocabulary: int) -> Adjuster | None:
    """What a session's settings make of logits; token ids are below `vocabulary`."""
    if not opening.sampling.adjusts:
        return None
    adjuster = Adjuster(vocabulary, opening.sampling)
    adjuster.add_prompt(opening.tokens[: opening.prompt])
    adjuster.add_answer(opening.tokens[opening.prompt :])
    return adjuster


def in_range(tokens: Ints, vocabulary: int) -> bool:
    """Whether every token is an id of the target's vocabulary."""
    return bool(np.all((tokens >= 0) & (tokens < vocabulary)))


def check_limits(limits: Limits) -> None:
    """Raises `ProtocolViolation` for limits that no draft could keep."""
    if not (np.isfinite(limits.error_scale) and limits.error_scale > 0):
        raise ProtocolViolation(f"error scale {limits.error_scale} is not a positive number")
    if limits.nodes_ahead > 0 and limits.width == 0:
        raise ProtocolViolation("a width of 0 leaves cannot grow any nodes")
