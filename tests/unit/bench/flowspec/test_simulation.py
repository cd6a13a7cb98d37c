"""The simulated pipeline: the same by seed, no time lost or made, the text of plain decoding."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bench.flowspec.__main__ import ACCEPTANCE_3, same_texts
from bench.flowspec.cells import languages
from bench.flowspec.language import Language, drawn_guesses
from bench.flowspec.leader_host import (
    PROMPT,
    ContinuousLeader,
    PlainLeader,
    RoundSizes,
    RoundsLeader,
)
from bench.flowspec.lock_step import LockStep
from bench.flowspec.network import FRAMING, Sizes
from bench.flowspec.outcome import Outcome
from bench.flowspec.setting import Links, Setting, jetson_7b
from bench.flowspec.sides import (
    PAPER,
    TENSOR,
    Cell,
    Figures,
    Make,
    continuous,
    figures,
    plain,
)
from bench.flowspec.tensor import tensor_parallel
from outrider.contract.settings import StageDtype
from outrider.worker.link.records import ALIGNMENT
from outrider.worker.pipeline.records import Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.wire.codec import Codec

TOKENS = 40
SIDES = {"plain": plain, "continuous": continuous, "tensor": TENSOR[-1], **PAPER}


@pytest.fixture(scope="module")
def language() -> Language:
    return Language.of(drawn_guesses(0.6, positions=512), PROMPT + TOKENS, seed=3)


def run(make: Make, language: Language, stages: int = 3, links: Links | None = None) -> Outcome:
    setting = jetson_7b(stages) if links is None else jetson_7b(stages, links)
    return make(setting, language).run()


@pytest.mark.parametrize("side", SIDES)
def test_every_side_writes_the_targets_text_in_times_that_can_be(
    side: str, language: Language
) -> None:
    text = language.text[PROMPT:].tolist()
    assert run(SIDES[side], language, links=Links(5e6, 30e-3)).text.tolist() == text
    outcome, again = (run(SIDES[side], language) for _ in range(2))
    assert outcome.text.tolist() == text
    assert (outcome.seconds, outcome.spans, outcome.bytes) == (
        again.seconds,
        again.spans,
        again.bytes,
    )
    for stage in range(outcome.stages):
        own = [span for span in outcome.spans if span.stage == stage]
        by_time = sorted(own, key=lambda span: span.begin)
        assert all(a.end <= b.begin + 1e-9 for a, b in pairwise(by_time)), "one thing at a time"
        assert 0 <= outcome.seconds - outcome.busy_seconds(stage) < outcome.seconds


def test_plain_decoding_takes_one_round_trip_a_token(language: Language) -> None:
    """Stages, links and the leader's own time, and nothing else."""
    setting = jetson_7b(3, Links(1e12, 2e-3))
    outcome = PlainLeader(setting, language, SegmentPlan(1, 1, 64)).run()
    around = 3 * setting.stage(0, 1) + 4 * 2e-3 + setting.host
    assert outcome.seconds / outcome.tokens == pytest.approx(around, rel=1e-3)


def test_what_comes_before_the_first_commit_is_not_counted(language: Language) -> None:
    """Turns begin to count where the leader does: a first tree that takes long changes nothing."""
    usual = run(PAPER["flowspec"], language)
    slow = PAPER["flowspec"](jetson_7b(3), language)
    assert isinstance(slow, LockStep)
    restarts = iter([100.0])
    restart = slow.restart
    slow.restart = lambda: restart() + next(restarts, 0.0)  # type: ignore[method-assign]
    late = slow.run()
    assert late.began == pytest.approx(usual.began + 100.0)
    assert late.seconds == pytest.approx(usual.seconds)
    assert (late.tokens, late.bytes) == (usual.tokens, usual.bytes)
    assert late.busy == pytest.approx(usual.busy)


def test_speculation_is_seen_to_work(language: Language) -> None:
    slow, fast = run(plain, language), run(continuous, language)
    assert fast.rate > 1.5 * slow.rate
    assert fast.busy > 1.5 * slow.busy


def test_rounds_wait_for_all_their_chunks(language: Language) -> None:
    """A round of two chunks commits once; the next tree is drafted only then."""
    setting = jetson_7b(2, Links(1e12, 0.0))
    leader = RoundsLeader(setting, language, RoundSizes(chunk=16, nodes=31, depth=4))
    outcome = leader.run()
    begins = sorted({span.begin for span in outcome.spans if span.stage == 0})
    ends = sorted({span.end for span in outcome.spans if span.stage == 1})
    drafting = setting.draft_pass(1) + 3 * setting.draft_pass(10)
    gaps = [
        begin - max(end for end in ends if end <= begin)
        for begin in begins
        if begin > ends[0] and begin - max(end for end in ends if end <= begin) > 1e-9
    ]
    assert any(gap == pytest.approx(drafting + setting.host, rel=0.01) for gap in gaps)
    assert outcome.commits == leader.rounds


def test_a_wrong_slot_is_another_text(language: Language) -> None:
    """A stage that forgets moves is noticed: its KV no longer says what the text is."""
    run_of = ContinuousLeader(jetson_7b(2), language, SegmentPlan(8, 3, 64))
    last = run_of.stages.layers[-1]
    last.move = lambda sources, destinations: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="different paths"):
        run_of.run()


def test_simulated_sizes_are_the_wires() -> None:
    rows = 5
    segment = Segment(
        number=3,
        rows=np.arange(rows, dtype=np.int64),
        sequence=np.zeros(rows, np.int64),
        slots=np.arange(rows, dtype=np.int32),
        tokens=np.arange(rows, dtype=np.int32),
        positions=np.arange(rows, dtype=np.int32),
        ancestors=np.ones((rows, 2), np.uint8),
        sample=np.ones(rows, np.bool_),
        hidden=np.zeros((rows, 4), np.float32),
    )
    real = segment.with_hidden(np.zeros((rows, 4096), np.float32))
    encoded = len(Codec(StageDtype.FP16, 4096).encode(real))
    assert Sizes(4096).of(segment) == pytest.approx(FRAMING + encoded, abs=ALIGNMENT)


def test_guesses_are_as_sure_as_they_are_right() -> None:
    guesses = drawn_guesses(0.5, positions=20_000)
    assert (guesses.rank == 0).mean() == pytest.approx(
        np.exp(guesses.on_path[:, 0]).mean(), abs=0.02
    )
    assert 0.5 <= (guesses.rank == 0).mean() <= 0.6


def test_the_draft_of_acceptance_3_commits_3_tokens_a_round() -> None:
    texts = languages(drawn_guesses(*ACCEPTANCE_3), 128, 3)
    found = figures(PAPER["rounds"], jetson_7b(4), texts)
    assert found.tokens_per_commit == pytest.approx(3.0, abs=0.1)


def test_a_wrong_text_is_noticed_with_best_sizes_and_the_papers(language: Language) -> None:
    right = figures(PAPER["rounds"], jetson_7b(2), [language])
    wrong = replace(right, same_text=False)

    def cell(best: Figures, paper: Figures) -> Cell:
        return Cell("", 2, "", {"rounds": best}, {"rounds": paper})

    good = cell(right, right)
    assert same_texts([good, good])
    assert not same_texts([good, cell(wrong, right)])
    assert not same_texts([cell(right, wrong), good])


def test_a_pass_over_tensor_parallel_devices_waits_for_two_sums_a_layer() -> None:
    setting = jetson_7b(4, Links(150e6, 2e-3))
    together = tensor_parallel(setting)
    assert together.count == 1
    for rows in (1, 16):
        a_share = rows * 2 * 4096 / 4 * 8 / 150e6 + 2e-3
        sums = 32 * 2 * 2 * 3 * a_share
        assert together.stage(0, rows) == pytest.approx(setting.stage(0, rows) + sums)
    alone = tensor_parallel(jetson_7b(1))
    assert alone.stage(0, 8) == pytest.approx(jetson_7b(1).stage(0, 8))


def test_more_delay_is_never_faster(language: Language) -> None:
    def seconds(make: Make, delay: float) -> float:
        setting: Setting = jetson_7b(3, Links(150e6, delay))
        return make(setting, language).run().seconds

    for make in (plain, PAPER["rounds"], PAPER["flowspec"]):
        assert seconds(make, 10e-3) > seconds(make, 0.0)
