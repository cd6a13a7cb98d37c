"""Draft tokens from the text itself: without a draft, beside one, and while it is down."""

from typing import Any

import pytest

from outrider.client import Sampling, State
from outrider.contract.planning import PlannerKind, TableEntry
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.speculation.local_sources import MAX_REST_SECONDS
from tests.process.conftest import MortalDraft
from tests.process.workers import (
    START_SECONDS,
    Answer,
    Worker,
    answer,
    let_grow,
    pair_with,
    wait_until,
)

COUNT = 300
FEW = dict.fromkeys(range(40, 46), 40.0)
"""Logit bias: six tokens and no others, so what comes has been there before."""

REPETITIVE = Sampling(logit_bias=FEW)
SAMPLINGS = (
    REPETITIVE,
    Sampling(temperature=0.3, seed=11, logit_bias=FEW),
    Sampling(repetition_penalty=1.05, logit_bias=FEW | {11: 1.5, 12: -100.0}),
)
LOCAL = (SourceKind.SUFFIX, SourceKind.RECYCLED)
FORCED = {
    "planner": PlannerKind.STATIC,
    "static_table": (TableEntry(first=1, draft_tokens=4),),
}
"""Four rows a pass wherever there are nodes, whatever the machine makes of their price."""


def until_helped(target: Worker, plain: Answer, **options: Any) -> int:
    """Answers until draft tokens were accepted, and returns how many: a source that has lost time
    rests for a while."""
    found: list[int] = []

    def helped() -> bool:
        given = answer(target, COUNT, **options)
        assert given.tokens == plain.tokens[:COUNT]
        found.append(given.result.usage.accepted_rows)
        return found[-1] > 0

    wait_until(helped, START_SECONDS + MAX_REST_SECONDS, "a source that helps")
    return found[-1]


@pytest.mark.parametrize("source", LOCAL)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_source_without_a_draft_changes_no_token(
    target: Worker, source: SourceKind, sampling: Sampling
) -> None:
    """The text itself, and the likeliest tokens of earlier rows."""

    def accepted(state: State) -> int:
        return state.counters.source_accepted[SOURCES.index(source)]

    before = accepted(target.client.state())
    pair_with(target, sources=(source,))
    plain = answer(target, COUNT, sampling=sampling, speculate=False)
    assert plain.result.usage.draft_rows == 0
    given = answer(target, COUNT, sampling=sampling)
    assert given.tokens == plain.tokens
    pair_with(target, sources=(source,), **FORCED)
    expected = given.result.usage.accepted_rows + until_helped(target, plain, sampling=sampling)
    target.until(lambda state: accepted(state) - before == expected)


def test_all_sources_change_no_token_whether_the_draft_is_up_or_down(
    target: Worker, draft: MortalDraft
) -> None:
    """Each is counted by itself."""
    pair_with(target, draft.address, sources=SOURCES)
    plain = answer(target, 2 * COUNT, sampling=REPETITIVE, speculate=False)

    def lose() -> None:
        draft.kill()
        target.until(lambda state: all(link.state != "up" for link in state.links))

    events = {100: lambda: let_grow(target, draft.worker), COUNT: lose}
    given = answer(target, 2 * COUNT, events, sampling=REPETITIVE)
    assert given.tokens == plain.tokens
    pair_with(target, sources=SOURCES, **FORCED)
    assert until_helped(target, plain, sampling=REPETITIVE) > 0
    counters = target.client.state().counters
    assert sum(counters.source_rows) == counters.draft_rows
    assert sum(counters.source_accepted) == counters.accepted_rows
