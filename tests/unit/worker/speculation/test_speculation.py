"""Both roles' schedulers over a link that loses, delays and dies: the text never changes."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.messages import Cancel, Finish, SetPolicy, Tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.switch import Drafting
from tests.unit.worker.pair import Pair

PROMPT = [1, 2, 3, 4, 5]


def test_a_draft_that_applies_the_penalties_drafts_better() -> None:
    sampling = SamplingParams(repetition_penalty=1.5, logit_bias=((3, 5.0),))
    shares = []
    for knows in (True, False):
        pair = Pair(noise=0.0, sampling=sampling)
        pair.submit(PROMPT, 120)
        pair.turn()
        pair.deliver()
        if not knows:
            (session,) = pair.draft.sessions.live.values()
            session.rules = replace(session.rules, adjuster=None)
        usage = pair.run().usage
        shares.append(usage.first_hits / usage.first_guesses)
    assert shares[0] == 1.0 > shares[1]


@pytest.mark.parametrize("draft_passes", [0, 6])
def test_each_token_comes_with_its_own_logprob(draft_passes: int) -> None:
    sampling = SamplingParams(
        temperature=0.8, frequency_penalty=0.5, logit_bias=((3, 2.0),), seed=7
    )
    pair = Pair(sampling=sampling, draft_passes=draft_passes)
    pair.submit(PROMPT, 80, logprobs=4)
    assert (pair.run().usage.accepted_rows > 0) == (draft_passes > 0)
    found = [f for m in pair.outbox if isinstance(m, Tokens) for f in m.logprobs]
    text = pair.expected(PROMPT, 80)
    assert pair.text() == text
    assert len(found) == len(text)
    for at, (token, sent) in enumerate(zip(text, found, strict=True)):
        logits = pair.target_model.logits(PROMPT + text[:at]).astype(np.float64)
        exact = logits - np.log(np.exp(logits).sum())
        best = np.argsort(-exact)[:4].tolist()
        assert sent.logprob == pytest.approx(exact[token], abs=1e-5)
        assert [token for token, _ in sent.top] == best
        assert [p for _, p in sent.top] == pytest.approx(exact[best], abs=1e-5)


def test_each_pass_shows_the_tree_that_led_to_its_tokens() -> None:
    pair = Pair(sampling=SamplingParams(temperature=0.7, seed=1))
    pair.submit(PROMPT, 120, shows_tree=True, stream_seconds=0.0)
    usage = pair.run().usage
    shown = [(m.tree, m.ids) for m in pair.outbox if isinstance(m, Tokens) and m.tree is not None]
    assert sum(len(tree.parents) for tree, _ in shown) == usage.draft_rows > 0
    assert sum(len(tree.accepted) for tree, _ in shown) == usage.accepted_rows > 0
    for tree, ids in shown:
        assert (*(tree.tokens[row] for row in tree.accepted), tree.following) == ids
        path = [0, *tree.accepted]
        assert [tree.parents[row - 1] for row in tree.accepted] == path[:-1]
        assert all(parent < row for row, parent in enumerate(tree.parents, 1))
    assert any(len(set(tree.parents)) < len(tree.parents) for tree, _ in shown), "some branch"


def test_trees_are_shown_only_where_they_are_requested() -> None:
    pair = Pair()
    pair.submit(PROMPT, 40)
    pair.run()
    assert not any(m.tree for m in pair.outbox if isinstance(m, Tokens))


def test_logprobs_come_only_where_they_are_requested() -> None:
    pair = Pair()
    pair.submit(PROMPT, 10)
    pair.run()
    assert not any(m.logprobs for m in pair.outbox if isinstance(m, Tokens))


FULL = BLOCK - len(PROMPT)
"""Tokens with which the first block is full."""


@pytest.mark.parametrize("kill_at", [1, 2, 7, 12, 33, FULL - 1, FULL, FULL + 1, 99])
def test_a_lost_draft_costs_no_token(kill_at: int) -> None:
    sampling = SamplingParams(temperature=0.7, seed=kill_at)
    pair = Pair(sampling=sampling)
    pair.submit(PROMPT, 200)
    accepted = [0, 0, 0]
    usage = None
    while len(pair.text()) < kill_at:
        pair.turn()
        usage = pair.target.admission.running[0].usage
    accepted[0] = usage.accepted_rows if usage else 0
    pair.cut()
    for _ in range(3):
        pair.turn()
    if usage is not None:
        accepted[1] = usage.accepted_rows
    pair.connect()
    end = pair.run()
    accepted[2] = end.usage.accepted_rows
    assert pair.text() == pair.expected(PROMPT, 200)
    assert (end.usage.completion_tokens - 1) / end.usage.passes > 1.3
    assert accepted[0] > 0 or kill_at < 12, "the draft was in use before it was lost"
    assert accepted[2] > accepted[1], "the draft is used again after it returns"


def test_a_cancelled_request_frees_its_memory_at_once() -> None:
    pair = Pair()
    pair.submit(PROMPT, 200)
    for _ in range(5):
        pair.turn()
    assert pair.target_kv_cache.used > 0
    pair.target.receive(Cancel(1), pair.now)
    assert pair.target_kv_cache.used == 0
    assert pair.finished().finish is Finish.CANCELLED  # type: ignore[union-attr]
    pair.turn()
    assert pair.draft_kv_cache.used == 0


def test_requests_beyond_memory_wait_and_then_run() -> None:
    pair = Pair()
    for request in range(1, 5):
        pair.submit([request, 2, 3], 20, request=request)
    for request in range(1, 5):
        pair.run(request)
        assert pair.text(request) == pair.expected([request, 2, 3], 20)


def test_a_policy_without_speculation_stops_the_draft() -> None:
    pair = Pair()
    pair.submit(PROMPT, 100)
    for _ in range(5):
        pair.turn()
    pair.target.receive(SetPolicy(PolicySettings(version=1, speculate=False)), pair.now)
    pair.turn()
    passes = pair.draft.sessions.counters.passes
    usage = pair.target.admission.running[0].usage
    accepted = usage.accepted_rows
    end = pair.run()
    assert pair.draft.sessions.counters.passes == passes
    assert end.usage.accepted_rows == accepted
    assert pair.text() == pair.expected(PROMPT, 100)


def test_a_request_may_refuse_speculation() -> None:
    pair = Pair()
    pair.submit(PROMPT, 40, speculate=False)
    end = pair.run()
    assert end.usage.draft_rows == 0
    assert end.usage.passes == 39
    assert pair.draft.sessions.counters.passes == 0


def test_the_draft_runs_each_token_and_each_leaf_once() -> None:
    pair = Pair()
    pair.submit(PROMPT, 100)
    pair.run()
    assert pair.draft.sessions.counters.draft_rows == pair.draft_model.rows_run


@pytest.mark.parametrize("state", [Drafting.CHECK, Drafting.OFF])
def test_drafting_that_rests_comes_back_although_requests_end_meanwhile(state: Drafting) -> None:
    pair = Pair(sampling=SamplingParams())
    switch = pair.target.row_selector.switch
    switch.state = state
    pair.target.row_selector.decide_drafting()
    for request in range(1, 200):
        pair.submit(PROMPT, 20, request)
        pair.run(request)
        if switch.drafting:
            return
    raise AssertionError(f"still {switch.state} after {pair.now} seconds")
