"""What a forward pass costs, as a function of its rows and context, measured once per machine.

`StepCosts` is arithmetic; planning with it is left to the planners. What is remembered is checked
by two quick measurements, which run before any sequence holds KV: they borrow a region.
"""

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from outrider.worker.blocks import BlockPool
from outrider.worker.facts import facts_file, remember, remembered
from outrider.worker.region import Region
from outrider.worker.rows import Rows, tree_rows

if TYPE_CHECKING:  # planners read costs without torch
    from outrider.worker.model.llama import Llama

Seconds = NDArray[np.float64]
logger = logging.getLogger(__name__)

BUCKETS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CONTEXTS = (128, 512)
CELL_SECONDS = 0.06
"""Time spent on one measurement that stands alone."""
TABLE_SECONDS = 2.0
"""Time spent on the whole table, unless LEAST_RUNS rounds take longer."""
LEAST_RUNS, MOST_RUNS = 3, 25
TRUSTED = 1.25
"""Remembered costs are measured afresh when they are off by more than this factor."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Measured seconds of passes; straight lines between, beyond, and not below."""

    rows: tuple[int, ...]
    """Row counts measured, rising."""
    contexts: tuple[int, int]
    """Tokens of context measured, rising."""
    measured: Seconds  # [contexts, rows], never falling along either axis

    @classmethod
    def smoothed(cls, rows: tuple[int, ...], contexts: tuple[int, int], raw: Seconds) -> Self:
        """From noisy measurements: more rows or context never cost less, nor do both together.

        Noise only adds: a point above one with more rows was disturbed, and takes that one's value.
        """
        near = _never_falling(raw[0])
        rising = np.stack((near, near + _never_falling(np.maximum(raw[1] - near, 0.0))))
        return cls(rows, contexts, rising)

    def seconds(self, rows: int, context: int) -> float:
        """Seconds of a pass of `rows` rows in all, each over about `context` tokens."""
        return float(self._at(np.array([rows], np.float64), context)[0])

    def curve(self, max_rows: int, context: int) -> Seconds:
        """float64[max_rows + 1]: seconds of passes of 1 … max_rows + 1 rows (root and nodes)."""
        return self._at(np.arange(1.0, max_rows + 2.0), context)

    def table(self) -> dict[int, float]:
        """Seconds by rows at the shorter context: what is reported."""
        return {n: float(x) for n, x in zip(self.rows, self.measured[0], strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `from_json` takes them."""
        return {"rows": self.rows, "contexts": self.contexts, "seconds": self.measured.tolist()}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; raises `ValueError` or `KeyError` for anything else."""
        rows, (near, far) = tuple(facts["rows"]), facts["contexts"]
        measured = np.array(facts["seconds"], np.float64)
        if measured.shape != (2, len(rows)) or not (measured > 0).all() or not near < far:
            raise ValueError(f"not step costs: {facts!r}")
        return cls(rows, (int(near), int(far)), measured)

    def _at(self, rows: Seconds, context: int) -> Seconds:
        near, far = (_line(rows, np.array(self.rows), row) for row in self.measured)
        share = (context - self.contexts[0]) / (self.contexts[1] - self.contexts[0])
        seconds: Seconds = near + max(share, 0.0) * (far - near)
        return seconds


def _never_falling(values: Seconds) -> Seconds:
    """Each value, or the least of those after it if that is less."""
    return np.minimum.accumulate(values[::-1])[::-1]


def _line(x: Seconds, known: Seconds, values: Seconds) -> Seconds:
    """Interpolation; past the last known point, its slope from half as many rows."""
    inside: Seconds = np.interp(x, known, values)
    if len(known) == 1:
        return inside
    half = max(0, int(np.searchsorted(known, known[-1] / 2, side="right")) - 1)
    slope = (values[-1] - values[half]) / (known[-1] - known[half])
    inside += slope * np.maximum(0.0, x - known[-1])
    return inside


def measured_costs(model: "Llama", threads: int, cache: Path) -> StepCosts:
    """Step costs of `model`, from the cache where two quick measurements agree with it."""
    file = facts_file(
        cache, "costs", model.config, str(model.path), threads, model.max_rows, model.pool.longest
    )
    known = _known(file)
    with borrowed(model.pool) as region:
        rehearsal = Rehearsal(model, region)
        if known is not None and _agrees(known, rehearsal):
            return known
        costs = measure(model, rehearsal)
    remember(file, costs.to_json())
    return costs


@contextlib.contextmanager
def borrowed(pool: BlockPool) -> Iterator[Region]:
    """The longest region, for rows that mean nothing; raises `RuntimeError` if it is not free."""
    region = pool.admit(np.empty(0, np.int32), pool.longest)
    if region is None:
        raise RuntimeError("the pool has no free region to rehearse in")
    try:
        yield region
    finally:
        pool.free(region)


class Rehearsal:
    """Passes of made-up tree rows over a region of the model's pool."""

    def __init__(self, model: "Llama", region: Region) -> None:
        self._model = model
        self._region = region

    def once(self, rows: int, context: int) -> float:
        """Seconds of one pass."""
        made = chain_rows(rows, context, self._region, self._model.config.vocab)
        start = time.perf_counter()
        self._model.forward(made)
        return time.perf_counter() - start

    def seconds(self, rows: int, context: int, spent: float = CELL_SECONDS) -> float:
        """Median seconds of a pass, after one that is not counted."""
        self.once(rows, context)
        times: list[float] = []
        while len(times) < LEAST_RUNS or (sum(times) < spent and len(times) < MOST_RUNS):
            times.append(self.once(rows, context))
        return statistics.median(times)


def chain_rows(rows: int, context: int, region: Region, vocab: int) -> Rows:
    """A root at position `context` and a chain of nodes behind it."""
    numbers = np.arange(rows, dtype=np.int32)
    offsets = numbers + np.int32(context)
    ancestors = np.tile(offsets, (rows, 1))  # row i uses the first i + 1
    prefix = np.full(rows, context, np.int32)
    tokens = (numbers * 7919 % vocab).astype(np.int32)
    depth = numbers + np.int32(1)
    return tree_rows(tokens, offsets, offsets, region, prefix, ancestors, depth)


def measure(model: "Llama", rehearsal: Rehearsal) -> StepCosts:
    """Measures every bucket that the model and its longest sequence hold.

    Goes round all of them again and again: what disturbs a machine for a while then disturbs all
    alike, and what a further row costs stays right (one after the other, a row was once measured
    at 0.7 ms that takes 0.1).
    """
    rows = tuple(n for n in BUCKETS if n <= model.max_rows)
    far = max(2, min(CONTEXTS[1], model.pool.longest - rows[-1]))
    contexts = (min(CONTEXTS[0], far // 2), far)
    started = time.perf_counter()
    rounds: list[list[list[float]]] = []
    while len(rounds) < LEAST_RUNS or time.perf_counter() - started < TABLE_SECONDS:
        rounds.append([[rehearsal.once(n, context) for n in rows] for context in contexts])
    logger.info(
        "measured step costs in %.1f s, %d rounds", time.perf_counter() - started, len(rounds)
    )
    return StepCosts.smoothed(rows, contexts, np.median(rounds, axis=0))


def _known(file: Path) -> StepCosts | None:
    facts = remembered(file)
    try:
        return None if facts is None else StepCosts.from_json(facts)
    except (KeyError, TypeError, ValueError):
        logger.warning("%s does not hold step costs: measuring afresh", file)
        return None


def _agrees(known: StepCosts, rehearsal: Rehearsal) -> bool:
    context = known.contexts[0]
    ratios = [
        rehearsal.seconds(n, context) / known.seconds(n, context)
        for n in (known.rows[0], known.rows[-1] if known.rows[-1] < 8 else 8)
    ]
    off = math.exp(statistics.mean(map(math.log, ratios)))
    if 1 / TRUSTED < off < TRUSTED:
        return True
    logger.info("remembered step costs are off by %.2f: measuring afresh", off)
    return False
