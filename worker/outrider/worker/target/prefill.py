"""Plan of prefill: how many rows of the next pass prompts get, and which prompts get them.

Pure arithmetic over measured step costs. Leaves the rows themselves to `target/batch`, and which
sequences have KV to `target/admission`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.worker.costs.step_costs import Seconds, StepCosts

STREAM_SLOWDOWN = 2.0
"""A pass beside decoding streams takes at most this many times what it takes without prefill."""
NEWCOMER_SECONDS = 0.03
"""Most seconds of a pass of prefill alone, unless `NEWCOMER_SHARE` allows more: a prompt that comes
meanwhile waits for it."""
NEWCOMER_SHARE = 24
"""Divisor of the longest prompt's time: a pass of prefill alone may take such a part of it, if that
is more than `NEWCOMER_SECONDS`. Behind a prompt of 1,500 tokens a short one gets its first token
after two such passes, so after a twelfth of its time."""
WORTHWHILE = 0.97
"""Prefill rows a second, over the best that is possible, at which a pass is long enough. By step
costs of two Zen 5 processors 0.97 takes 5 % more time for all than first come; 0.9 took 8 %."""
OLDEST_SHARE = 4
"""The first prompt in line gets this part of the rows, however many shorter ones come."""


class Prompt(NamedTuple):
    """A prompt that is not computed yet."""

    rest: int
    """Tokens without KV, at least one."""
    computed: int
    """Tokens with KV."""
    priority: int = 0
    """Higher ones go first."""
    chunk: int = 0
    """Rows of its next chunk by the vendor's library; 0: the kernels compute what is left."""


class Streams(NamedTuple):
    """Sequences that decode in the same pass."""

    sequences: int
    context: int
    """Their mean length; 0 if there are none."""


class PrefillPlanner(Protocol):
    """Shares out the prefill rows of a pass."""

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        """Return the rows of each prompt, of `most` together; `prompts` by priority and arrival."""


class FairPrefill:
    """Shortest rest first, in passes that neither streams nor newcomers wait for too long."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        """Return the rows of each prompt, of `most` together; `prompts` by priority and arrival."""
        most = min(most, sum(prompt.rest for prompt in prompts))
        if not prompts or most <= 0:
            return [0] * len(prompts)
        context = max(prompt.computed for prompt in prompts)
        if streams.sequences:
            seconds = self._costs.prefill_curve(most, context, streams.sequences)
            without = self._costs.seconds(streams.sequences, streams.context, streams.sequences)
            return fair_shares(prompts, without + (seconds - seconds[0]), beside=True)
        return fair_shares(prompts, self._costs.prefill_curve(most - 1, context, 1), beside=False)


class ChunkPrefill:
    """One chunk of one prompt a pass, for prompts that the vendor's library computes.

    The shortest rest goes first, by priority, and each `OLDEST_SHARE`-th chunk is of the first
    prompt in line. Step costs know nothing of such chunks: reading all weights is most of one's
    time, however many rows it has. What the kernels compute again of a preempted answer is one
    chunk, as far as the pass holds it.
    """

    def __init__(self) -> None:
        self._chunks = 0
        """Chunks so far."""

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        """Return the rows of each prompt; `most` of those that the kernels compute."""
        counts = [0] * len(prompts)
        if not prompts:
            return counts
        self._chunks += 1
        by_rest = sorted(range(len(prompts)), key=lambda n: (-prompts[n].priority, prompts[n].rest))
        at = 0 if self._chunks % OLDEST_SHARE == 0 else by_rest[0]
        counts[at] = prompts[at].chunk or min(prompts[at].rest, max(most, 0))
        return counts


def fair_shares(prompts: Sequence[Prompt], seconds: Seconds, beside: bool) -> list[int]:
    """Return the rows of each prompt; `prompts` by priority and arrival, at least one.

    `beside`: streams decode in the same pass. `seconds` are those of `rows_beside` or `rows_alone`.
    """
    longest = max(prompt.rest + prompt.computed for prompt in prompts)
    return shares(prompts, rows_beside(seconds) if beside else rows_alone(seconds, longest))


def rows_beside(seconds: Seconds) -> int:
    """Return the prefill rows of a pass beside streams, at least one.

    `seconds` [rows + 1] of passes with 0, 1, … prefill rows, never falling.
    """
    bound = STREAM_SLOWDOWN * seconds[0]
    allowed = int(np.searchsorted(seconds[1:], bound, side="right"))
    return int(_worthwhile(seconds[1 : allowed + 1])[-1]) if allowed else 1


def rows_alone(seconds: Seconds, longest: int) -> int:
    """Return the rows of a pass of prefill alone.

    `seconds` [rows] of passes with 1, 2, … rows, never falling; `longest`: tokens of the longest
    prompt that is being computed.
    """
    brief = int(np.searchsorted(seconds, NEWCOMER_SECONDS, side="right"))
    worthwhile = _worthwhile(seconds)
    allowed = worthwhile[worthwhile <= max(brief, longest // NEWCOMER_SHARE)]
    return int(allowed[-1] if len(allowed) else worthwhile[0])


def shares(prompts: Sequence[Prompt], rows: int) -> list[int]:
    """Return the rows of each prompt, of `rows` together, at most its rest.

    The first in line gets its part; the others follow by priority, then by their rest, and it
    takes what they leave. So none starves: all those before it end, and then it is the first.
    """
    counts = [0] * len(prompts)
    counts[0] = min(prompts[0].rest, -(-rows // OLDEST_SHARE))
    left = rows - counts[0]
    by_rest = sorted(enumerate(prompts), key=lambda one: (-one[1].priority, one[1].rest))
    for at, prompt in by_rest:
        more = min(left, prompt.rest - counts[at])
        counts[at] += more
        left -= more
    return counts


def _worthwhile(seconds: Seconds) -> NDArray[np.int64]:
    """Return the row counts, rising, whose rows a second come near the best; never none."""
    counts = np.arange(1, len(seconds) + 1)
    rates = counts / seconds
    near: NDArray[np.int64] = counts[rates >= WORTHWHILE * rates.max()]
    return near
