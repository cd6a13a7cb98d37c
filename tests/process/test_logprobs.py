"""Log-probabilities come with every token of an answer, whatever brought it."""

import math

from outrider.client import Sampling
from tests.process.conftest import MortalDraft
from tests.process.workers import Worker, answer, let_grow, pair_with

SAMPLING = Sampling(temperature=0.8, frequency_penalty=0.1, seed=5)


def test_a_draft_changes_no_log_probability(target: Worker, draft: MortalDraft) -> None:
    pair_with(target, draft.address)
    grown = {100: lambda: let_grow(target, draft.worker)}
    given = answer(target, 200, grown, sampling=SAMPLING, logprobs=3)
    plain = answer(target, 200, sampling=SAMPLING, logprobs=3, speculate=False)
    assert given.result.usage.accepted_rows > 0
    assert given.result.logprobs == plain.result.logprobs
    for token, found in zip(given.tokens, given.result.logprobs, strict=True):
        assert found.token.token_id == token
        assert found.token.text == (bytes([token]) if token < 256 else b"")
        assert len(found.top) == 3
        assert found.top[0].logprob >= max(found.token.logprob, math.log(1 / 512))


def test_a_stop_string_leaves_one_log_probability_for_each_token(target: Worker) -> None:
    plain = target.client.complete("Once", max_tokens=60)
    stop = next(c for c in plain.text if c.isascii())
    result = target.client.complete("Once", max_tokens=60, stop=[stop], logprobs=0)
    assert len(result.logprobs) == len(result.token_ids) > 0
    assert [found.token.token_id for found in result.logprobs] == list(result.token_ids)
    assert not any(found.top for found in result.logprobs)
