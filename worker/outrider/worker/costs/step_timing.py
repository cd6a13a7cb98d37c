"""Measurement of step costs: seconds of forward passes, once per machine and model, remembered.

What is remembered is checked by two quick measurements. All of them run before any
sequence holds KV: they borrow block tables. Leaves what lies between them to `step_costs`.
"""

import contextlib
import enum
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.worker.costs.measurement_cache import facts_file
from outrider.worker.costs.step_costs import Seconds, StepCosts
from outrider.worker.host.disk_cache import remember, remembered, turn
from outrider.worker.kv.block_pool import BlockPool, BlockTable
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows

logger = logging.getLogger(__name__)

BUCKETS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CONTEXTS = (128, 512)
BATCHES = (1, 4, 16)
NO_TOKENS = np.empty(0, np.int32)
MIN_PREFILL_SHARE = 0.5
"""A lower one is taken for a disturbed measurement."""
CHECK_SECONDS = 0.12
"""Time spent on the check of what is remembered."""
TABLE_SECONDS = 2.0
"""Time spent on the whole table, unless MIN_RUNS rounds take longer or MAX_RUNS less."""
MIN_RUNS, MAX_RUNS = 2, 25
"""A model whose rounds are that long has long passes, which noise changes little."""
TRUSTED = 1.25
"""Factor by which remembered costs may be off before they are doubted."""
TRUSTED_SHAPE = 1.1
"""Factor by which the remembered ratio of what several rows cost to what one costs may be off
before it is doubted: it decides how many rows pay. A table measured on a busy machine once had 8
rows at 1.5 times one row, where they took 1.2 times; with it drafting gained nothing."""
TURN = ".timing.lock"
"""Beside the folders of all models: processes time passes one after the other."""
LONGEST_WAIT = 10.0
"""Seconds for others that do."""
MOST_DOUBTS = 3
"""Starts in a row that find passes slower than remembered, from which on that is the machine and
not the moment."""
DOUBTS = "doubts"
"""In the file of step costs: such starts until now."""


class Finding(enum.Enum):
    """What a check says of remembered costs."""

    RIGHT = enum.auto()
    SLOWER = enum.auto()
    """Passes take longer now: the machine is busy, or another."""
    WRONG = enum.auto()
    """Passes take less time now, which no disturbance makes: what was measured then was disturbed.
    """


class Measurable(Protocol):
    """A model over its KV cache, alone or with other ranks."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def path(self) -> str: ...
    @property
    def kv_cache(self) -> BlockPool: ...
    @property
    def row_capacity(self) -> int: ...

    def forward(self, rows: Rows) -> object:
        """Run one pass."""


def measured_costs(
    model: Measurable,
    threads: int,
    cache: Path,
    sequences: int = 1,
    ranks: int = 1,
    machine: Sequence[str] = (),
) -> StepCosts:
    """Return step costs of `model`, from the cache where two quick measurements are not against it.

    `sequences`: the most that one pass will have rows of. `machine`: what else they depend on
    besides the processor, such as a GPU and what compiles for it.
    """
    batch = min(sequences, BATCHES[-1])
    room = min(model.kv_cache.longest, CONTEXTS[-1] + BUCKETS[-1])
    shape = (model.row_capacity, room, batch, *machine)
    file = facts_file(cache, "costs", model.config, str(model.path), threads, ranks, *shape)
    known, doubts = remembered(file, _known) or (None, 0)
    with (
        _borrowed(model.kv_cache, room, batch) as block_tables,
        turn(cache.parent / TURN, LONGEST_WAIT),
    ):
        timed_pass = TimedPass(model, block_tables)
        if known is not None:
            finding = finding_of(*_ratios(known, timed_pass))
            now = doubts + 1 if finding is Finding.SLOWER else 0
            if finding is not Finding.WRONG and now < MOST_DOUBTS:
                if now != doubts:
                    remember(file, known.to_json() | {DOUBTS: now})
                return known
        costs = measure(model, timed_pass)
    remember(file, costs.to_json())
    return costs


@contextlib.contextmanager
def borrowed(kv_cache: BlockPool) -> Iterator[BlockTable]:
    """Borrow the longest block table, for made-up rows; raises `RuntimeError` if it is not free."""
    with _borrowed(kv_cache, kv_cache.longest, 1) as block_tables:
        yield block_tables[0]


@contextlib.contextmanager
def _borrowed(kv_cache: BlockPool, room: int, most: int) -> Iterator[Sequence[BlockTable]]:
    """Borrow as many block tables as there are, at least one and at most `most`."""
    block_tables = [r for _ in range(most) if (r := kv_cache.admit(NO_TOKENS, room)) is not None]
    if not block_tables:
        raise RuntimeError("the KV cache has no free blocks to time passes in")
    try:
        yield block_tables
    finally:
        for block_table in block_tables:
            kv_cache.free(block_table)


class TimedPass:
    """Passes of made-up tree rows over block tables of the model's KV cache."""

    def __init__(self, model: Measurable, block_tables: Sequence[BlockTable]) -> None:
        self._model = model
        self._block_tables = block_tables

    @property
    def room(self) -> int:
        """Slots of each sequence."""
        return self._block_tables[0].room

    @property
    def sequences(self) -> int:
        """Most sequences that it has room for."""
        return len(self._block_tables)

    def once(self, rows: int, context: int, sequences: int = 1) -> float:
        """Return the seconds of one pass over `rows` rows, shared out evenly."""
        shares = [len(share) for share in np.array_split(np.empty(rows), sequences)]
        vocab = self._model.config.vocab
        made = joined(
            [
                chain_rows(share, context, block_table, vocab)
                for share, block_table in zip(shares, self._block_tables, strict=False)
            ]
        )
        return self._timed(made)

    def prefill(self, rows: int, context: int) -> float:
        """Return the seconds of one pass over a prefill chunk that ends with its root."""
        vocab = self._model.config.vocab
        return self._timed(prompt_rows(tokens(rows, vocab), context, self._block_tables[0], True))

    def _timed(self, rows: Rows) -> float:
        start = time.perf_counter()
        self._model.forward(rows)
        return time.perf_counter() - start


def chain_rows(rows: int, context: int, block_table: BlockTable, vocab: int) -> Rows:
    """Build a root at position `context` and a chain of nodes behind it."""
    numbers = np.arange(rows, dtype=np.int32)
    offsets = numbers + np.int32(context)
    ancestors = np.tile(offsets, (rows, 1))  # row i uses the first i + 1
    prefix = np.full(rows, context, np.int32)
    depth = numbers + np.int32(1)
    return tree_rows(tokens(rows, vocab), offsets, block_table, prefix, ancestors, depth)


def tokens(count: int, vocab: int) -> NDArray[np.int32]:
    """Make up ids."""
    return (np.arange(count) * 7919 % vocab).astype(np.int32)


def measure(model: Measurable, timed_pass: TimedPass) -> StepCosts:
    """Measure the buckets that the model and the block tables hold.

    Goes round all of them again and again: what disturbs a machine for a while then disturbs all
    alike, and what a further row costs stays right (one after the other, a row was once measured
    at 0.7 ms that takes 0.1). Each round goes from many rows to few: a pass after one of many more
    finds its weights out of the cache (right after 64 rows the demo's target took 5.2 ms for one
    row, 3.2 otherwise). The least time of each counts: other work only ever adds. The longer
    context and several sequences are measured for few rows: what they add changes evenly with rows.
    """
    rows = tuple(n for n in BUCKETS if n <= model.row_capacity)
    far = max(2, min(CONTEXTS[1], timed_pass.room - rows[-1]))
    contexts = (min(CONTEXTS[0], far // 2), far)
    batches = tuple(n for n in BATCHES if n <= min(timed_pass.sequences, rows[-1]))
    near, ends = contexts[0], [(_first(rows, batch), rows[-1], batch) for batch in batches]
    cells = {(n, near, 1) for n in rows} | {(rows[-1], far, 1)}
    cells |= {(n, near, batch) for *few, batch in ends for n in few}
    cells |= {(first, far, batch) for first, _, batch in ends}
    ordered = sorted(cells, reverse=True)
    passes = [partial(timed_pass.once, *cell) for cell in ordered]
    prefill = partial(timed_pass.prefill, rows[-1], near)
    least_prefill, *least = least_seconds([prefill, *passes], TABLE_SECONDS)
    table = _filled(dict(zip(ordered, least, strict=True)), rows, contexts, batches)
    share = prefill_share(table[0, 0, 0], table[0, 0, -1], least_prefill)
    return StepCosts.smoothed(rows, contexts, table, batches, share)


def least_seconds(passes: Sequence[Callable[[], float]], spend: float) -> list[float]:
    """Return the least seconds of each of `passes`, timed in rounds for about `spend` seconds.

    Each returns the seconds that it took.
    """
    started = time.perf_counter()
    spent = 0.0
    rounds: list[list[float]] = []
    while len(rounds) < MIN_RUNS or (spent < spend and len(rounds) < MAX_RUNS):
        rounds.append([run() for run in passes])
        spent = time.perf_counter() - started
    logger.info("timed %d passes in %.1f s, %d rounds", len(passes), spent, len(rounds))
    return [min(times) for times in zip(*rounds, strict=True)]


def prefill_share(one: float, most: float, prefill: float) -> float:
    """Return `StepCosts.prefill_share`; seconds of a row, of the most rows, and without logits."""
    if most <= one:
        return 1.0
    return min(1.0, max(MIN_PREFILL_SHARE, (prefill - one) / (most - one)))


def _first(rows: tuple[int, ...], batch: int) -> int:
    """Return the fewest rows measured that give each sequence one."""
    return next(n for n in rows if n >= batch)


def _filled(
    seconds: Mapping[tuple[int, int, int], float],
    rows: tuple[int, ...],
    contexts: tuple[int, int],
    batches: tuple[int, ...],
) -> Seconds:
    """Fill in [batches, contexts, rows] by straight lines between the cells that were measured."""
    near, far = contexts
    table = np.empty((len(batches), len(contexts), len(rows)))
    table[0, 0] = [seconds[n, near, 1] for n in rows]
    ends = rows[0], rows[-1]
    longer = np.interp(rows, ends, [seconds[n, far, 1] - seconds[n, near, 1] for n in ends])
    for b, batch in enumerate(batches):
        known = sorted({_first(rows, batch), rows[-1]})
        more = [seconds[n, near, batch] - seconds[n, near, 1] for n in known]
        table[b, 0] = table[0, 0] + np.interp(rows, known, more)
        at = rows.index(known[0])
        table[b, 1] = table[b, 0] + longer
        table[b, 1] += seconds[known[0], far, batch] - table[b, 1, at]
    return table


def _known(facts: Any) -> tuple[StepCosts, int]:
    """Read what is remembered, and how many starts in a row have found passes slower."""
    return StepCosts.from_json(facts), int(facts.get(DOUBTS, 0))


def _ratios(known: StepCosts, timed_pass: TimedPass) -> tuple[float, float]:
    """Return what a pass of one row takes now, over what is remembered, and one of several."""
    context = known.contexts[0]
    checked = (known.rows[0], min(known.rows[-1], 8))
    passes = [partial(timed_pass.once, n, context) for n in checked]
    now = least_seconds(passes, CHECK_SECONDS)
    one, several = (s / known.seconds(n, context) for n, s in zip(checked, now, strict=True))
    return one, several


def finding_of(one: float, several: float) -> Finding:
    """Judge remembered costs by what passes of one row and of several take now, over them.

    Other work only ever adds: a pass that takes less than remembered says that the memory is wrong,
    one that takes longer may say that the machine is busy now.
    """
    level, shape = math.sqrt(one * several), several / one
    if 1 / TRUSTED < level < TRUSTED and 1 / TRUSTED_SHAPE < shape < TRUSTED_SHAPE:
        return Finding.RIGHT
    finding = Finding.WRONG if min(one, several) < 1 / TRUSTED_SHAPE else Finding.SLOWER
    words = "remembered step costs are off by %.2f, rows by %.2f: %s"
    logger.info(words, level, shape, finding.name.lower())
    return finding
