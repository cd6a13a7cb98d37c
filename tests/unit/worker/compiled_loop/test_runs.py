"""Runs of a target, alone and with a colocated draft: what ends them, and what they leave."""

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SourceKind
from outrider.worker.compiled_loop.loop import MOST_ROOTS, Reason
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.launch.warm_up_roots import warm_up_roots
from outrider.worker.messages import Finish, Tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.switch import PROBE_SECONDS
from tests.pairwise import pairwise
from tests.tiny_models import write_tiny
from tests.unit.worker.tiny_engines import (
    ALWAYS,
    DRAFT_CONTEXT,
    MOST_STEPS,
    POLICY,
    SAME,
    SAMPLINGS,
    TinyColocated,
    TinyTarget,
    any_time_will_do,
    assert_same,
    foreign_tokens,
)

DRAFT_AND_TEXT = SourceKind.DRAFT, SourceKind.SUFFIX
each_kind = pytest.mark.parametrize("kind", [TinyTarget, TinyColocated])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    any_time_will_do(monkeypatch)


@each_kind
def test_a_run_returns_when_the_answer_is_long_enough(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder)
    target.submit(1, prompt=5, count=12)
    assert target.run_to_end()[-1].reason is Reason.END
    assert len(target.text()) == 12
    assert target.finish(1) is Finish.LENGTH


@each_kind
def test_a_run_returns_at_an_end_token(folder: Path, kind: type[TinyTarget]) -> None:
    known, target = kind(folder), kind(folder)
    known.submit(1, prompt=5, count=20)
    known.run_to_end()
    end = known.text()[9]
    target.submit(1, prompt=5, count=20, end_ids=(end,))
    assert target.run_to_end()[-1].reason is Reason.END
    assert target.text() == known.text()[: known.text().index(end) + 1]
    assert target.finish(1) is Finish.STOP


@each_kind
def test_a_run_returns_where_no_logit_is_a_number(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder)
    target.planner.most = 3
    target.submit(1, prompt=5, count=60)
    target.first_run()
    target.model.kv_cache.v[:] = np.nan
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.END, 1)
    assert target.finish(1) is Finish.FAILED


@each_kind
def test_a_run_returns_for_a_message(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder)
    target.submit(1, prompt=5, count=60)
    target.arrived[0] = 1
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.MESSAGE, 1)


@each_kind
def test_a_run_returns_when_tokens_are_due(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder)
    target.submit(1, prompt=5, count=60, stream_seconds=ALWAYS)
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.STREAM, 1)
    assert target.sent(1)[-1].passes == 1


@each_kind
def test_a_run_returns_when_it_has_to_be_booked(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder, 3)
    target.submit(1, prompt=5, count=60)
    output = target.first_run()
    assert (output.reason, len(output.roots)) == (Reason.ROOTS, 3)


@each_kind
@pytest.mark.parametrize("changes", [{"logprobs": 1}, {"sampling": SAMPLINGS[2]}])
def test_what_needs_more_than_tokens_runs_step_by_step(
    folder: Path, kind: type[TinyTarget], changes: dict[str, Any]
) -> None:
    target = kind(folder)
    target.submit(1, prompt=5, count=40, **changes)
    assert target.run_to_end() == []
    assert len(target.text()) == 40


@each_kind
def test_time_between_passes_is_host_time(folder: Path, kind: type[TinyTarget]) -> None:
    target = kind(folder)
    target.submit(1, prompt=5, count=60)
    output = target.first_run()
    assert 0 < target.target.host_seconds < output.seconds


def test_a_run_returns_when_a_block_can_be_shared(folder: Path) -> None:
    target = TinyTarget(folder)
    target.submit(1, prompt=BLOCK - 10, count=40)
    target.step()
    (sequence,) = target.target.admission.running
    while sequence.kv.published == 0:
        output = target.first_run()
    assert output.reason is Reason.BLOCK
    assert sequence.computed == BLOCK


def test_a_run_returns_when_the_next_pass_may_need_a_block(folder: Path) -> None:
    target = TinyTarget(folder)
    target.submit(1, prompt=BLOCK - 20, count=40)
    output = target.first_run()
    (sequence,) = target.target.admission.running
    assert output.reason is Reason.BLOCK
    assert sequence.length + 1 + POLICY.max_rows > sequence.kv.room == BLOCK


def test_a_run_of_a_draft_returns_for_a_block_and_when_it_has_to_be_booked(folder: Path) -> None:
    pair = TinyColocated(folder)
    pair.planner.most = 16
    pair.submit(1, prompt=BLOCK - 20, count=200)
    reasons = [output.reason for output in pair.run_to_end()]
    assert {Reason.BLOCK, Reason.ROOTS} <= set(reasons)


def test_a_run_ends_before_the_drafts_context_and_the_answer_goes_on(folder: Path) -> None:
    pair = TinyColocated(folder)
    pair.submit(1, prompt=DRAFT_CONTEXT - 90, count=110)
    lengths = []
    while pair.busy:
        output = pair.step()
        if output is not None and output.reason == Reason.DRAFT:
            lengths += [sequence.length for sequence in pair.target.admission.running]
    assert max(lengths) + MAX_DEPTH + 1 < DRAFT_CONTEXT + MAX_DEPTH + 1
    assert max(lengths) + MAX_DEPTH + 1 >= DRAFT_CONTEXT, "it ended for that reason"
    assert len(pair.text()) == 110


@pytest.mark.parametrize(
    ("price", "sampling", "sources", "foreign"),
    pairwise(
        price=[0.0, 0.2, 0.5],
        sampling=SAMPLINGS[:2],
        sources=[POLICY.sources, DRAFT_AND_TEXT],
        foreign=[False, True],
    ),
)
def test_runs_leave_the_state_that_steps_leave(
    folder: Path,
    price: float,
    sampling: SamplingParams,
    sources: tuple[SourceKind, ...],
    foreign: bool,
) -> None:
    tokens = foreign_tokens() if foreign else SAME
    steps, runs = (TinyColocated(folder, roots, price, tokens=tokens) for roots in (0, MOST_ROOTS))
    for pair in (steps, runs):
        pair.set_policy(replace(POLICY, sources=sources))
        pair.submit(1, prompt=20, count=200, sampling=sampling)
    growths = set()
    while runs.busy:
        output = runs.step()
        growths |= {len(root.draft_passes) for root in output.roots} if output else set()
        for _ in range(MOST_STEPS):
            if steps.passes == runs.passes:
                break
            steps.step()
        if output is not None:
            assert_same(runs.state(), steps.state())
    assert len(growths) > 1, "roots were waited for by what their growth was worth"
    assert_same(runs.state(), steps.state())


def test_runs_show_the_tree_of_their_last_root(folder: Path) -> None:
    pair = TinyColocated(folder)
    pair.submit(1, prompt=20, count=100, shows_tree=True, stream_seconds=0.0)
    runs = pair.run_to_end()
    trees = [m.tree for m in pair.outbox if isinstance(m, Tokens) and m.tree is not None]
    assert runs
    assert trees
    text = pair.text()
    for tree in trees:
        written = [*(tree.tokens[row] for row in (0, *tree.accepted)), tree.following]
        places = range(len(text) - len(written) + 1)
        assert any(text[at : at + len(written)] == written for at in places)


def test_what_is_copied_is_guessed_within_runs(folder: Path) -> None:
    target = TinyTarget(folder)
    target.set_policy(replace(POLICY, sources=(SourceKind.SUFFIX,)))
    target.submit(1, prompt=120, count=150)
    assert sum(root.done.nodes for output in target.run_to_end() for root in output.roots) > 0
    counters = target.target.report().counters
    assert counters.source_rows == (0, counters.draft_rows, 0, 0)


def test_moves_that_no_pass_has_made_wait_for_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ValueError("no run")

    pair = TinyColocated(folder)
    pair.submit(1, prompt=5, count=60)
    pair.first_run()
    cache = pair.model.kv_cache
    table = pair.target.admission.running[0].kv
    cache.move(table, np.array([9], np.int32), np.array([8], np.int32))
    monkeypatch.setattr("outrider.worker.compiled_loop.runner.run_roots", fail)
    with pytest.raises(ValueError, match="no run"):
        pair.first_run()
    assert cache.waiting_moves > 0


def test_roots_are_compiled_before_a_request_needs_them(folder: Path) -> None:
    pair = TinyColocated(folder)
    assert warm_up_roots(pair.scheduler)
    assert pair.model.kv_cache.used == 0
    assert pair.draft_model.kv_cache.used == 0


def test_each_pass_of_a_run_is_a_span(folder: Path) -> None:
    target = TinyTarget(folder)
    target.submit(1, prompt=5, count=9)
    spans = list(target.first_run().spans())
    assert [(one.lane, one.rows, one.committed_rows) for one in spans] == 8 * [("target", 1, 1)]
    assert all(one.ended <= other.began for one, other in itertools.pairwise(spans))


def test_a_timeline_shows_the_passes_of_both(folder: Path) -> None:
    pair = TinyColocated(folder)
    pair.submit(1, prompt=5, count=60)
    output = pair.first_run()
    spans = list(output.spans())
    assert [span.lane for span in spans].count("target") == len(output.roots)
    assert [span.lane for span in spans].count("draft") == sum(
        len(root.draft_passes) for root in output.roots
    )
    assert all(one.ended <= other.began for one, other in itertools.pairwise(spans))
    root = output.roots[-1]
    assert spans[-1].rows == 1 + root.done.nodes
    assert spans[-1].committed_rows == len(root.done.tokens)


def test_no_run_is_planned_while_first_growth_is_tried(folder: Path) -> None:
    pair = TinyColocated(folder)
    pair.submit(1, prompt=5, count=60)
    pair.first_run()
    (sequence,) = pair.target.admission.running
    account, now = pair.target.row_selector.account, time.monotonic()
    assert pair.planner.plan(sequence, now) is not None
    account.present.tried_at = now - 2 * PROBE_SECONDS
    assert pair.planner.plan(sequence, now) is None
