"""Models that cost only time, for `bench.host_tree`: each row's logits follow from its own token.

A text is a chain in which every token has one next token. A draft of such a text has it among the
children of most tokens, mostly as the likeliest. Both sides compute that from tokens alone, so they
need know nothing of each other.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from outrider.worker.model.rows import Rows
from outrider.worker.tree.growth import Ints

VOCABULARY = 49_152
OUTPUTS = 8192
"""Ids that the draft can put out, as the demo's draft; the text keeps to them."""
CHILDREN = 4
SHARES = np.log(np.array([0.6, 0.2, 0.1, 0.05], np.float32))
"""Log-probabilities of a token's children."""
HIT_PERCENT = (60, 20)
"""Percent of tokens after which the next one is the draft's first child, and its second one; else
it is none of them."""
UNLIKELY = -20.0
"""Mean logit of every other token."""

Pass = Callable[[], None]


def next_tokens(tokens: Ints) -> Ints:
    """Return the token that follows each, int32[n]; the text comes by every token in turn."""
    return ((tokens.astype(np.int64) * 1229 + 17) % OUTPUTS).astype(np.int32)


def children(tokens: Ints) -> Ints:
    """Return each token's children in a draft, int32[n, CHILDREN], likeliest first."""
    right = next_tokens(tokens)
    found = (right[:, None] + 1009 * np.arange(1, CHILDREN + 1)) % OUTPUTS
    luck = (tokens.astype(np.int64) * 2_654_435_761 >> 7) % 100
    first, second = HIT_PERCENT
    for place, hit in ((0, luck < first), (1, (luck >= first) & (luck < first + second))):
        found[hit, place] = right[hit]
    return found.astype(np.int32)


def target_logits(tokens: Ints) -> tuple[Ints, NDArray[np.float32]]:
    """Return the likely tokens after each, [n, 1], and their logits."""
    return next_tokens(tokens)[:, None], np.zeros((len(tokens), 1), np.float32)


def draft_logits(tokens: Ints) -> tuple[Ints, NDArray[np.float32]]:
    """Return the likely tokens after each, [n, CHILDREN], and their logits."""
    return children(tokens), np.broadcast_to(SHARES, (len(tokens), CHILDREN))


class PassClock:
    """Time that models took since they were last asked, in a context manager around each pass."""

    def __init__(self) -> None:
        self._nanoseconds = [0, 0]
        self._began = 0, 0

    def __enter__(self) -> None:
        self._began = stamp()

    def __exit__(self, *_: object) -> None:
        for i, (end, begin) in enumerate(zip(stamp(), self._began, strict=True)):
            self._nanoseconds[i] += end - begin

    def take(self) -> tuple[int, int]:
        """Return nanoseconds of the wall clock and of this thread's processor time."""
        (wall, own), self._nanoseconds = self._nanoseconds, [0, 0]
        return wall, own


@dataclass(slots=True)
class FakeModel:
    """A model without weights: `forward` takes a pass's time and puts out what is likely."""

    columns: int
    likely: Callable[[Ints], tuple[Ints, NDArray[np.float32]]]
    run_pass: Pass
    rows: int = 64
    clock: PassClock = field(default_factory=PassClock)
    _logits: NDArray[np.float32] = field(init=False)
    _unlikely: NDArray[np.float32] = field(init=False)
    _raised: tuple[Ints, Ints] = (np.zeros((0, 1), np.int32), np.zeros((0, 1), np.int32))
    """Places in `_logits` that are likely."""

    def __post_init__(self) -> None:
        noise = np.random.default_rng(1).standard_normal((self.rows, self.columns), np.float32)
        self._unlikely = UNLIKELY + noise
        self._logits = self._unlikely.copy()

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """Return logits [outputs, columns]; valid until the next call."""
        with self.clock:
            return self._forward(rows)

    def _forward(self, rows: Rows) -> NDArray[np.float32]:
        self._logits[self._raised] = self._unlikely[self._raised]
        tokens, logits = self.likely(rows.tokens[rows.outputs])
        self._raised = np.arange(len(tokens), dtype=np.int32)[:, None], tokens
        self._logits[self._raised] = logits
        self.run_pass()
        return self._logits[: len(tokens)]


def stamp() -> tuple[int, int]:
    """Return the wall clock and this thread's processor time, in nanoseconds."""
    return time.perf_counter_ns(), time.thread_time_ns()


def computing(seconds: float) -> Pass:
    """Return a pass that only computes, without the interpreter lock."""

    def run() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            _spin(20_000)

    return run


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _spin(rounds: int) -> float:
    value = 1.0
    for i in range(rounds):
        value = value * 0.999 + 1.0 / (i + 1)
    return value
