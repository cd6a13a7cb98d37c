"""Finished answers as a source: who finds them, and which are kept."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.messages import Cancel, Finish, SetPolicy, Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.answer_index import write
from outrider.worker.target.finished_answers import MOST_KEYS, FinishedAnswers
from tests.unit.worker.pair import Pair

POLICY = PolicySettings(version=2, off_below_percent=0, sources=(SourceKind.ANSWERS,))
PROMPT = [1, 2, 3, 4, 5]
COUNT = 60
KEY, OTHER = 0, 1


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.target.receive(SetPolicy(POLICY), 0.0)
    return made


def ask(pair: Pair, request: int, **changes: object) -> int:
    """Answer the prompt; return the node rows that were accepted."""
    pair.submit(PROMPT, COUNT, request, **changes)
    end = pair.run(request)
    assert pair.text(request) == pair.expected(PROMPT, COUNT)
    assert end.usage.accepted_rows <= end.usage.draft_rows
    return end.usage.accepted_rows


def test_an_answer_helps_later_requests_with_its_key_and_no_others(pair: Pair) -> None:
    assert ask(pair, 1, key=KEY) == 0
    assert ask(pair, 2, key=OTHER) == 0
    assert ask(pair, 3) == 0
    helped = ask(pair, 4, key=KEY)
    assert helped > COUNT // 2
    counters = pair.target.report().counters
    assert counters.source_accepted == tuple(
        helped if kind is SourceKind.ANSWERS else 0 for kind in SOURCES
    )
    assert ask(pair, 5) == 0, "no key is no key that others share"


def test_a_request_that_wants_no_draft_tokens_finds_and_leaves_nothing(pair: Pair) -> None:
    ask(pair, 1, key=KEY, speculate=False)
    assert ask(pair, 2, key=KEY) == 0
    assert ask(pair, 3, key=KEY, speculate=False) == 0


def test_an_answer_that_was_broken_off_helps_the_next_request(pair: Pair) -> None:
    pair.submit(PROMPT, COUNT, 1, key=KEY)
    for _ in range(COUNT // 2):
        pair.turn()
    pair.target.receive(Cancel(1), pair.now)
    end = pair.finished(1)
    assert end is not None
    assert end.finish is Finish.CANCELLED
    assert ask(pair, 2, key=KEY) > COUNT // 4


def test_a_policy_without_the_source_forgets_all_answers(pair: Pair) -> None:
    ask(pair, 1, key=KEY)
    pair.target.receive(SetPolicy(replace(POLICY, version=3, sources=(SourceKind.SUFFIX,))), 0.0)
    ask(pair, 2, key=KEY)
    pair.target.receive(SetPolicy(replace(POLICY, version=4)), 0.0)
    assert ask(pair, 3, key=KEY) == 0


def submit_of(key: int) -> Submit:
    return Submit(1, np.array(PROMPT, np.int32), SamplingParams(), 1, (), True, 0.0, key=key)


def test_keys_that_were_used_last_keep_their_answers() -> None:
    answers = FinishedAnswers()
    for key in range(MOST_KEYS):
        write(answers.of(submit_of(key)), np.array(PROMPT, np.int32), 0, len(PROMPT))
    answers.of(submit_of(0))
    answers.of(submit_of(MOST_KEYS))
    assert answers.of(submit_of(0)).written[0] > 0
    assert answers.of(submit_of(1)).written[0] == 0, "it was forgotten"
