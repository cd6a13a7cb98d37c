"""Tokens per second of each arrangement, expected from step costs and the pair's acceptance. Pure.

One request at a time, of a pair whose draft gets the next token right with one chance at every
depth. Beside the target the draft grows a tree while a pass runs; inside the target it drafts
between passes; and a pass that finds no node commits one token.

The formulas are checked against the measurements of decision 0014 on one machine. Leaves measuring
to `choose`.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from outrider.cli.placement.arrangement import Arrangement
from outrider.contract.settings import Role
from outrider.operator.spec import Placement

HOST_SECONDS = 0.0003
"""Of a target's pass, between passes (Zen 5, plain decoding of the demo: 3.7 ms a pass of 3.4)."""
DRAFT_HOST_SECONDS = 0.0001
"""Of a draft's pass."""
LINK_SECONDS = 0.0005
"""From a commit to the draft and back, without the draft's passes (rings of shared memory)."""
CONTENTION = 0.15
"""Share by which a pass beside a busy draft is longer than one alone: they share memory and caches
(Zen 5, two processors: 0.24 as measured, 0.10 in a simulation of it)."""
ROWS_A_LEVEL = 1.75
"""Node rows that a verify pass has for each depth (the demo's pair: 3.5 rows at 2 levels)."""
MAX_LEVELS = 6
CATCH_UP_ROWS = 2
"""Of a draft's first pass after a commit: what was committed."""
GROWTH_ROWS = 8
"""Of its further passes: leaves that are expanded together."""
MARGIN = 1.03
"""What drafting has to gain over plain decoding to be taken: an estimate is no better."""
SAME = 1.01
"""Of numbers of threads that differ by less, the least is taken."""
COMPARED = (Placement.COLOCATED, Placement.SEPARATE)

Threads = int


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a pass by its rows; straight lines between, and beyond."""

    seconds_by_rows: Mapping[int, float]

    def seconds(self, rows: float) -> float:
        """Return the seconds of a pass of a fractional number of rows."""
        points = sorted(self.seconds_by_rows.items())
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        after = next((at for at, (n, _) in enumerate(points) if n >= rows), len(points) - 1)
        (low, start), (high, end) = points[after - 1], points[after]
        return start + (end - start) * (rows - low) / (high - low)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Curve":
        """Read what a worker printed; raises `KeyError`, `TypeError` or `ValueError`."""
        rows = {int(n): float(s) for n, s in facts["rows"].items()}
        if not rows or not all(s > 0 for s in rows.values()):
            raise ValueError(f"not the cost of passes: {facts!r}")
        return cls(MappingProxyType(rows))


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What passes of both models cost on this machine."""

    target: Mapping[Threads, Curve]
    draft: Mapping[Threads, Curve]
    """Empty where the service has none."""

    @classmethod
    def of(cls, measured: Mapping[str, Any]) -> "StepCosts":
        """Read what a worker measured by role and threads; raises as `Curve.of` does."""
        target, draft = (
            {int(threads): Curve.of(facts) for threads, facts in measured.get(role, {}).items()}
            for role in (Role.TARGET, Role.DRAFT)
        )
        if not target:
            raise ValueError("no step costs of the target")
        return cls(target, draft)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a service may use."""

    processors: int
    """For each target and its draft."""
    gpus: int = 0
    """That can be shared out to workers."""
    target_gpus: int = 0
    """That all targets need; 0: they run on the CPU."""
    draft_gpus: int = 0
    """That all drafts need as processes of their own."""

    @property
    def separate_gpus(self) -> bool:
        """True unless targets and drafts, each its own process, would have to share a GPU."""
        one_kind = self.target_gpus == 0 or self.draft_gpus == 0
        return one_kind or self.target_gpus + self.draft_gpus <= self.gpus

    @property
    def shared_processors(self) -> bool:
        """True if both models run on the CPU, and so take memory bandwidth from each other."""
        return self.target_gpus == 0 and self.draft_gpus == 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What one arrangement gives."""

    arrangement: Arrangement
    tokens_per_second: float
    measured: bool = False
    """True if it ran; else it is computed."""


def arrangements(
    costs: StepCosts, machine: Machine, allowed: frozenset[Placement]
) -> Iterator[Arrangement]:
    """Yield every arrangement that the machine and the service allow."""
    own = _fitting(costs.target, machine)
    for threads in own:
        yield Arrangement(None, threads)
    if not costs.draft:
        return
    if Placement.COLOCATED in allowed:
        for threads in own:
            yield Arrangement(Placement.COLOCATED, threads)
    if Placement.SEPARATE in allowed and machine.separate_gpus:
        for threads, draft_threads in itertools.product(costs.target, costs.draft):
            on_cpu = 1 if machine.target_gpus else threads  # one that feeds the GPUs
            on_cpu += 0 if machine.draft_gpus else draft_threads
            if on_cpu <= machine.processors:
                yield Arrangement(Placement.SEPARATE, threads, draft_threads)


def _fitting(counts: Collection[Threads], machine: Machine) -> list[Threads]:
    """Return the numbers of threads for which each target has processors, at least the least."""
    fitting = [n for n in counts if machine.target_gpus or n <= machine.processors]
    return fitting or [min(counts)]


def expected(
    costs: StepCosts, machine: Machine, allowed: frozenset[Placement], acceptance: float
) -> list[Expected]:
    """Return what each arrangement would give, the best first; acceptance is above 0, below 1."""
    rates = [
        Expected(one, tokens_per_second(one, costs, machine, acceptance))
        for one in arrangements(costs, machine, allowed)
    ]
    return sorted(rates, key=lambda e: -e.tokens_per_second)


def tokens_per_second(
    arrangement: Arrangement, costs: StepCosts, machine: Machine, acceptance: float
) -> float:
    """Return the expected rate of one arrangement, with as many levels of drafting as pay best."""
    target = costs.target[arrangement.threads]
    if arrangement.placement is None:
        return 1 / (target.seconds(1) + HOST_SECONDS)
    if arrangement.placement is Placement.COLOCATED:
        draft = _inside(costs.draft, arrangement.threads)
        return max(_serial(target, draft, acceptance, n) for n in range(1, MAX_LEVELS + 1))
    draft = costs.draft[arrangement.draft_threads]
    return max(ParallelDraft(target, draft, machine.shared_processors, acceptance).rates())


def best_plain(found: list[Expected]) -> Expected:
    """Return the fastest arrangement without a draft; of about equal ones that of fewest threads,
    which leaves processors to the rest of the machine."""
    plain = [e for e in found if e.arrangement.placement is None]
    enough = max(e.tokens_per_second for e in plain) / SAME
    return min(
        (e for e in plain if e.tokens_per_second >= enough), key=lambda e: e.arrangement.threads
    )


def best(found: list[Expected], *, keeps_draft: bool = False) -> Expected:
    """Return the fastest arrangement; with a draft only if that gains more than `MARGIN`, or if
    the service keeps its draft whatever it gains."""
    plain = best_plain(found)
    drafted = [e for e in found if e.arrangement.placement is not None]
    fastest = max(drafted, key=lambda e: e.tokens_per_second, default=plain)
    gains = fastest.tokens_per_second > MARGIN * plain.tokens_per_second
    return fastest if gains or (keeps_draft and fastest.tokens_per_second > 0) else plain


def each_placement(found: list[Expected]) -> list[Expected]:
    """Return the best arrangement without a draft and of each placement, the fastest first."""
    by_placement = [best_plain(found)]
    for placement in COMPARED:
        of_it = [e for e in found if e.arrangement.placement is placement]
        by_placement += [max(of_it, key=lambda e: e.tokens_per_second)] if of_it else []
    return sorted(by_placement, key=lambda e: -e.tokens_per_second)


def _inside(draft: Mapping[Threads, Curve], threads: Threads) -> Curve:
    """Return the curve of a draft inside a target with so many threads: it has the same, up to the
    most that are measured."""
    return draft[max((n for n in draft if n <= threads), default=min(draft))]


def levels_reached(acceptance: float, levels: int) -> float:
    """Return the expected draft tokens that a pass accepts of a tree so deep."""
    return sum(acceptance**level for level in range(1, levels + 1))


def _serial(target: Curve, draft: Curve, acceptance: float, levels: int) -> float:
    """Rate drafting so many levels before each verify pass, in the target's own process."""
    drafting = draft.seconds(CATCH_UP_ROWS) + (levels - 1) * draft.seconds(GROWTH_ROWS)
    verifying = target.seconds(1 + levels * ROWS_A_LEVEL) + HOST_SECONDS
    seconds = drafting + levels * DRAFT_HOST_SECONDS + verifying
    return (1 + levels_reached(acceptance, levels)) / seconds


@dataclass(frozen=True, slots=True)
class ParallelDraft:
    """A draft that grows its tree in a process of its own while the target's passes run.

    The next root is in the tree as often as the draft is right. If it is not, the target decodes
    plainly, or waits for some levels of the new tree.
    """

    target: Curve
    draft: Curve
    shared: bool
    """True if both take memory bandwidth from each other."""
    acceptance: float

    def rates(self) -> Iterator[float]:
        """Yield the tokens per second with each depth of the tree that can be reached in time."""
        for levels in range(1, MAX_LEVELS + 1):
            if self._growth(levels) <= self.target.seconds(1) + HOST_SECONDS or levels == 1:
                yield self.rate(levels)

    def rate(self, levels: int) -> float:
        """Return the tokens per second of trees so deep, waiting for as much of one as pays."""
        return max(self._rate(levels, waited) for waited in range(levels + 1))

    def _rate(self, levels: int, waited: int) -> float:
        """Rate trees of `levels` after a hit, and of the `waited` levels after a miss."""
        hit = self.acceptance if waited or self._in_time() else 0.0
        contention = self._contention(levels)
        drafted = contention * self.target.seconds(1 + levels * ROWS_A_LEVEL)
        missed = contention * self.target.seconds(1 + waited * ROWS_A_LEVEL)
        if waited:
            missed += LINK_SECONDS + contention * self._growth(waited)
        reached = hit * levels_reached(self.acceptance, levels)
        reached += (1 - hit) * levels_reached(self.acceptance, waited)
        return (1 + reached) / (hit * drafted + (1 - hit) * missed + HOST_SECONDS)

    def _contention(self, levels: int) -> float:
        """Return a pass's time beside the draft, which rests once its tree is deep enough."""
        busy = min(1.0, self._growth(levels) / self.target.seconds(1))
        return 1 + CONTENTION * busy if self.shared else 1.0

    def _in_time(self) -> bool:
        """True if two levels below an old root have come before a plain pass ends."""
        plain = self._contention(2) * self.target.seconds(1) + HOST_SECONDS
        return LINK_SECONDS + self._growth(2) <= plain

    def _growth(self, levels: int) -> float:
        """Return the seconds in which the draft grows so many levels of a new tree."""
        passes = self.draft.seconds(CATCH_UP_ROWS) + (levels - 1) * self.draft.seconds(GROWTH_ROWS)
        return passes + levels * DRAFT_HOST_SECONDS
