"""The same seed gives the same text, whatever the draft, the link and the numeric path do."""

import dataclasses
import random
from collections.abc import Callable, Iterator

import pytest

from outrider.client import Sampling
from outrider.contract.settings import Dtype, ModelSettings, Role
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.proxy import Proxy
from tests.process.workers import HITS, Worker, answer, assert_speculated, let_grow, pair_with

COUNT = 300
COARSE_HITS = 0.1
"""Least share of first guesses that are right with a target in INT4: about 0.3 are."""
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, seed=11),
    Sampling(temperature=1.0, top_k=40, top_p=0.9, min_p=0.02, seed=2**64 - 1),
    Sampling(frequency_penalty=0.2, presence_penalty=-0.1, logit_bias={11: 1.5, 12: -100.0}),
    Sampling(temperature=0.7, repetition_penalty=1.05, choice=1, seed=11),
)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_draft_on_off_or_refused_changes_no_token(
    target: Worker, draft: MortalDraft, sampling: Sampling
) -> None:
    assert_same_text(target, draft, sampling)


@pytest.fixture(scope="module")
def narrow_target(request: pytest.FixtureRequest, folders: Folders) -> Iterator[Worker]:
    """A target whose weights are rounded."""
    model = ModelSettings(uri=f"file://{folders.target}", dtype=request.param)
    settings = dataclasses.replace(folders.settings(Role.TARGET), model=model)
    with workers.started(settings, folders.logs) as worker:
        assert worker.client.state().dtype == request.param
        yield worker


@pytest.mark.parametrize(
    ("narrow_target", "sampling"),
    [
        *((Dtype.BF16, sampling) for sampling in SAMPLINGS[:2]),
        *((Dtype.INT8, sampling) for sampling in SAMPLINGS[2:4]),
        *((Dtype.INT4, sampling) for sampling in SAMPLINGS[::4]),
    ],
    indirect=["narrow_target"],
)
def test_narrow_weights_keep_rows_independent(
    narrow_target: Worker, draft: MortalDraft, sampling: Sampling
) -> None:
    coarse = narrow_target.settings.model.dtype is Dtype.INT4  # and so less like its draft
    assert_same_text(narrow_target, draft, sampling, hits=COARSE_HITS if coarse else HITS)


@pytest.mark.parametrize("delay", [0.005, 0.030])
def test_a_slow_link_changes_no_token(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...], delay: float
) -> None:
    with Proxy(draft.address, delay) as proxy:
        pair_with(target, proxy.address)
        grown = dict.fromkeys(
            (100, 200, 300, 400, 500),  # a full tree may still be wrong, or be late by a pass
            lambda: let_grow(target, draft.worker, lambda: proxy.empty),
        )
        given = answer(target, 600, grown)
    assert given.tokens == plain[:600]
    assert_speculated(given)


@pytest.mark.parametrize("seed", range(2))
def test_a_link_that_is_cut_again_and_again_changes_no_token(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...], seed: int
) -> None:
    def grow() -> None:
        draft.worker.until(lambda state: state.running == 1)
        let_grow(target, draft.worker, lambda: proxy.empty)

    dice = random.Random(seed)
    cuts = sorted(dice.sample(range(60, 1000), 6))
    with Proxy(draft.address) as proxy:
        pair_with(target, proxy.address)
        events: dict[int, Callable[[], object]] = dict.fromkeys(cuts, proxy.cut)
        grown = {cuts[0] - 30: grow, cuts[-1] + 100: grow}
        given = answer(target, 1200, {**events, **grown})
        assert proxy.connections > len(cuts) // 2
    assert given.tokens == plain[:1200]
    assert given.accepted(end=cuts[0]) > 0
    assert given.accepted(start=cuts[-1] + 64) > 0
    assert_speculated(given)


def assert_same_text(
    target: Worker, draft: MortalDraft, sampling: Sampling, hits: float = HITS
) -> None:
    """Refused by the request, without a draft, by policy, and with a draft."""
    pair_with(target, draft.address)
    grown = {COUNT // 2: lambda: let_grow(target, draft.worker)}
    given = answer(target, COUNT, grown, sampling=sampling)
    refused = answer(target, COUNT, sampling=sampling, speculate=False)
    pair_with(target, draft.address, speculate=False)
    switched_off = answer(target, COUNT, sampling=sampling)
    assert_speculated(given, hits)
    assert refused.result.usage.draft_rows == switched_off.result.usage.draft_rows == 0
    assert given.tokens == refused.tokens == switched_off.tokens
