"""Claims about pools under faults: what makes each met, missed and not tried."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.faults import claims as module
from bench.faults.claims import Claim, claims
from bench.faults.figures import FaultFigures
from bench.faults.injector import Event
from bench.faults.plan import Fault, Kind
from outrider.cli.load.exchange import Exchange, Status

ANSWERED = Exchange((0, {}), due=0.0, ended=1.0, status=Status.COMPLETED)
SAME = {"compared": 2, "differences": []}
DIFFERENT = {"compared": 2, "differences": ["prompt 0: 'a' and 'b' from character 3 on"]}


def of(kind: Kind, **changes: Any) -> FaultFigures:
    """What is seen where all is well."""
    well = FaultFigures(
        event=Event(Fault(kind, 1, 6.0, 4.0), 10.0, 15.0),
        rate_before=100.0,
        rate_during=90.0,
        recovered=0.4,
        linked=0.3,
        longest_gap=0.2,
        waited=0.05,
        share_before=0.3,
        share_during=0.1,
        moved=0.97,
        spread=0.5,
    )
    return replace(well, **changes)


def test_all_is_had_where_all_is_well() -> None:
    found = claims([ANSWERED], SAME, [of(kind) for kind in Kind], 0.2, targets=2)
    assert [one.verdict for one in found] == ["met"] * 7


def test_what_no_fault_has_tried_is_neither_had_nor_not() -> None:
    found = claims([ANSWERED], SAME, [], 0.2, targets=2)
    assert [one.verdict for one in found] == ["met", "met", *["not tried"] * 5]


def test_nothing_asked_is_nothing_had() -> None:
    found = claims([], {"compared": 0, "differences": []}, [], 0.0, targets=2)
    assert {one.verdict for one in found} == {"not tried"}


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (module.back_at_once, [of(Kind.KILLED), of(Kind.KILLED, recovered=1.1)]),
        (module.back_at_once, [of(Kind.KILLED, recovered=None)]),
        (lambda found: module.one_wait(found, 0.2), [of(Kind.STOPPED, longest_gap=0.5)]),
        (module.sessions_move, [of(Kind.KILLED), of(Kind.KILLED, moved=0.5)]),
        (lambda found: module.evenly(found, 2), [of(Kind.KILLED, spread=2.5)]),
        (module.slow_is_avoided, [of(Kind.DELAYED, share_during=0.2)]),
    ],
)
def test_one_fault_that_goes_wrong_is_enough(
    claim: Callable[[Sequence[FaultFigures]], Claim], found: list[FaultFigures]
) -> None:
    assert claim(found).verdict == "missed"


def test_a_wrong_text_and_a_lost_request_are_counted() -> None:
    lost = replace(ANSWERED, status=Status.FAILED)
    text, none_lost = claims([ANSWERED, lost], DIFFERENT, [], 0.2, targets=2)[:2]
    assert (text.verdict, text.found) == ("missed", "1 of 2 answers differ")
    assert (none_lost.verdict, none_lost.found) == ("missed", "1 of 2 lost")
