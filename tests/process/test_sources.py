"""Draft tokens from the text itself: without a draft, beside one, and while it is down."""

import pytest

from outrider.client import Sampling, State
from outrider.contract.sources import SOURCES, SourceKind
from tests.process.conftest import MortalDraft
from tests.process.workers import Worker, answer, let_grow, pair_with

COUNT = 300
SUFFIX = SOURCES.index(SourceKind.SUFFIX)
FEW = dict.fromkeys(range(40, 46), 40.0)
"""Logit bias: six tokens and no others, so what comes has been there before."""

REPETITIVE = Sampling(logit_bias=FEW)
SAMPLINGS = (
    REPETITIVE,
    Sampling(temperature=0.3, seed=11, logit_bias=FEW),
    Sampling(repetition_penalty=1.05, logit_bias=FEW | {11: 1.5, 12: -100.0}),
)


def accepted(state: State) -> int:
    """Return the draft tokens from the text that were accepted so far."""
    return state.counters.source_accepted[SUFFIX]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_text_as_a_source_changes_no_token_of_it(target: Worker, sampling: Sampling) -> None:
    """And is one without any draft."""
    pair_with(target, sources=(SourceKind.SUFFIX,))
    plain = answer(target, COUNT, sampling=sampling, speculate=False)
    before = accepted(target.client.state())
    given = answer(target, COUNT, sampling=sampling)
    assert given.tokens == plain.tokens
    assert plain.result.usage.draft_rows == 0
    assert given.result.usage.accepted_rows > 0
    target.until(lambda state: accepted(state) - before == given.result.usage.accepted_rows)


def test_both_sources_change_no_token_whether_the_draft_is_up_or_down(
    target: Worker, draft: MortalDraft
) -> None:
    """Each is counted by itself."""
    pair_with(target, draft.address, sources=SOURCES)
    plain = answer(target, 2 * COUNT, sampling=REPETITIVE, speculate=False)
    before = target.client.state().counters.source_accepted

    def lose() -> None:
        draft.kill()
        target.until(lambda state: all(link.state != "up" for link in state.links))

    events = {100: lambda: let_grow(target, draft.worker), COUNT: lose}
    given = answer(target, 2 * COUNT, events, sampling=REPETITIVE)
    assert given.tokens == plain.tokens
    assert given.accepted(start=COUNT + 64) > 0
    counters = target.client.state().counters
    assert all(now > then for now, then in zip(counters.source_accepted, before, strict=True))
    assert sum(counters.source_rows) == counters.draft_rows
    assert sum(counters.source_accepted) == counters.accepted_rows
