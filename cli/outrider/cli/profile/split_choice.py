"""Split of devices between target and draft, as SwiftSpec chooses it (arXiv 2506.11309). Pure.

Every pair of degrees of tensor parallelism is looked at, odd ones too: heads that a degree does not
divide are padded. How deep trees are follows from how many of the draft's passes fit into one of
the target's: r of them, so depths r and r + 1 are tried. Beside these stands plain decoding with
all devices. Rates are those of `placement.formula`, by passes that were measured one after the
other. Leaves measuring to `split`.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from outrider.cli.placement.choose import MARGIN
from outrider.cli.placement.facts import curve_of
from outrider.cli.placement.formula import (
    GROWTH_ROWS,
    HOST_SECONDS,
    MOST_LEVELS,
    Curve,
    Rounds,
    plain_rate,
    seconds,
)
from outrider.contract.settings import Role

WIDTH = GROWTH_ROWS
"""Leaves that a pass of the draft expands together; 8 in the paper, too."""
CHEAP = 1.1
"""A verify pass gets rows up to so many times what one of a single row takes."""
MOST_ROWS = 32
MOST_DEPTH = 16

Degree = int


@dataclass(frozen=True, slots=True)
class SplitCosts:
    """What passes of both models cost, by degree of tensor parallelism."""

    target: Mapping[Degree, Curve]
    draft: Mapping[Degree, Curve]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read `{"target": {"1": {"rows": {"1": seconds, …}}, …}, "draft": …}`.

        Raises `ValueError` with the name of what is wrong.
        """
        target, draft = (_curves(table, role) for role in (Role.TARGET, Role.DRAFT))
        return cls(MappingProxyType(target), MappingProxyType(draft))


@dataclass(frozen=True, slots=True)
class Split:
    """Devices of target and draft, and what they are expected to give."""

    target: Degree
    draft: Degree
    """0: no draft."""
    depth: int
    """Passes of the draft for each of the target; 0 without a draft."""
    rows: int
    """Draft tokens of a verify pass that cost next to nothing."""
    target_seconds: float
    """Seconds of a verify pass over `rows` draft tokens and the root."""
    draft_seconds: float
    """Seconds of a draft pass over `WIDTH` leaves."""
    tokens_per_second: float
    """Tokens a second of one request."""

    @property
    def name(self) -> str:
        """As tables show it."""
        return name_of(self.target, self.draft)

    @property
    def nodes_ahead(self) -> int:
        """Nodes of a tree: those of this pass of the target, and of the next."""
        return 2 * WIDTH * self.depth


def name_of(target: Degree, draft: Degree) -> str:
    """Return a split as tables show it; a draft of 0 is none."""
    return f"{target} + {draft}" if draft else f"{target}, no draft"


def splits(costs: SplitCosts, devices: int, acceptance: float) -> list[Split]:
    """Return every split of so many devices, the fastest first, each with its better depth.

    Raises `ValueError` where none has so few.
    """
    found = [plain(costs, devices)]
    for target, draft in itertools.product(costs.target, costs.draft):
        if target + draft <= devices:
            both = Rounds(costs.target[target], costs.draft[draft], acceptance)
            deep = (_split(target, draft, both, depth) for depth in depths(both))
            found.append(max(deep, key=lambda one: one.tokens_per_second))
    return sorted(found, key=lambda one: -one.tokens_per_second)


def plain(costs: SplitCosts, devices: int) -> Split:
    """Return the fastest plain decoding with at most so many devices.

    Raises `ValueError` if no degree is so small.
    """
    rates = {
        degree: plain_rate(curve) for degree, curve in costs.target.items() if degree <= devices
    }
    if not rates:
        raise ValueError(f"target: {', '.join(map(str, costs.target))}; none is at most {devices}")
    best = max(rates, key=lambda degree: rates[degree])
    return Split(best, 0, 0, 0, seconds(costs.target[best], 1), 0.0, rates[best])


def recommended(found: list[Split]) -> Split:
    """Return the fastest split; with a draft only if that gains more than `MARGIN`."""
    alone = next(one for one in found if not one.draft)
    best = found[0]
    return best if best.tokens_per_second > MARGIN * alone.tokens_per_second else alone


def depths(both: Rounds) -> tuple[int, int]:
    """Return r and r + 1: how many passes of the draft fit into one of the target."""
    verifying = seconds(both.target, 1 + cheap_rows(both.target)) + HOST_SECONDS
    fitting = int(verifying / seconds(both.draft, WIDTH))
    least = min(max(1, fitting), MOST_DEPTH - 1)
    return least, least + 1


def cheap_rows(target: Curve) -> int:
    """Return the most draft tokens that make a pass no more than `CHEAP` times as long."""
    limit = CHEAP * seconds(target, 1)
    return next((n for n in range(MOST_ROWS, 1, -1) if seconds(target, 1 + n) <= limit), 1)


def _split(target: Degree, draft: Degree, both: Rounds, depth: int) -> Split:
    rows = cheap_rows(both.target)
    return Split(
        target,
        draft,
        depth,
        rows,
        seconds(both.target, 1 + rows),
        seconds(both.draft, WIDTH),
        both.parallel(min(depth, MOST_LEVELS)),
    )


def _curves(table: Mapping[str, Any], role: Role) -> dict[Degree, Curve]:
    by_degree = table.get(role) if isinstance(table, Mapping) else None
    if not isinstance(by_degree, Mapping) or not by_degree:
        raise ValueError(f"{role}: missing; it must have seconds by degree and rows")
    return dict(_read(role, by_degree))


def _read(role: Role, by_degree: Mapping[str, Any]) -> Iterator[tuple[Degree, Curve]]:
    for degree, facts in by_degree.items():
        where = f"{role}.{degree}"
        if not str(degree).isdecimal() or int(degree) < 1:
            raise ValueError(f"{where}: {degree!r} is not a degree; allowed: 1, 2, …")
        try:
            yield int(degree), curve_of(facts["rows"])
        except (KeyError, TypeError, ValueError, AttributeError):
            words = 'allowed: {"rows": {"1": seconds, "2": seconds, …}}, all above 0'
            raise ValueError(f"{where}: {str(facts)[:60]} is not allowed; {words}") from None
