"""A draft's memory lent to its target's KV and taken back, at every point of serving."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.contract.counters import Choice
from outrider.contract.settings import PolicySettings
from outrider.contract.state import DraftMemoryState
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.launch.memory_lender import MemoryLender
from outrider.worker.messages import Cancel, EngineReport, Finish
from outrider.worker.model.movable_weights import CopyFailed
from outrider.worker.speculation.draft_memory import DraftMemory, MemorySettings
from outrider.worker.speculation.switch import Drafting
from tests.unit.worker.colocated_pair import ColocatedPair

LENT = 4
CALM = 0.2
HASTY = MemorySettings(calm_seconds=CALM, retry_seconds=0.1)


@dataclass
class Weights:
    """Copies that end when the test says so."""

    bytes: int = 1000
    here: bool = True
    ended: bool = False
    broken: bool = False
    refused: bool = False
    """No copy begins."""

    def offload(self) -> None:
        assert self.here
        self.refuse()
        self.ended = self.broken = False

    def reload(self) -> None:
        assert not self.here
        self.refuse()
        self.ended = self.broken = False

    def refuse(self) -> None:
        if self.refused:
            raise CopyFailed("can't start new thread")

    def finished(self) -> bool:
        if self.broken:
            raise CopyFailed("the disk is full")
        if self.ended:
            self.here = not self.here
        return self.ended


@dataclass
class Lending(ColocatedPair):
    """Target and draft in one process, with few blocks; no draft pass runs without its memory."""

    running: int = 3
    spare_blocks: int | None = 1
    context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weights = Weights()
        self.own = self.target_kv_cache.blocks
        self.draft_own = self.draft_kv_cache.blocks
        self.lender = MemoryLender(
            DraftMemory(self.own, LENT, HASTY),
            self.weights,
            self.target_kv_cache,
            self.draft_kv_cache,
            (100, 10),
        )
        self.colocated.lender = self.lender
        self.measure(1.0, 6.0)
        self.colocated.run = self.checked(self.colocated.run)  # type: ignore[method-assign]

    @property
    def state(self) -> DraftMemoryState:
        return self.lender.memory.state

    def measure(self, gain: float, seconds: float) -> None:
        """Let the switch see drafting with a gain, of any number of requests."""
        selector = self.target.row_selector
        for sequences in (1, 3, 2):
            selector.enter(sequences, self.now)
            for _ in range(int(seconds / 0.5)):
                self.now += 0.5
                selector.switch.observe(gain * 0.5, 0.5, self.now)
        selector.decide_drafting()

    def checked(self, run: Any) -> Any:
        def checked_run(step: Any) -> Any:
            assert self.weights.here or not isinstance(step, DraftBatch)
            assert not (self.lender.memory.away and isinstance(step, DraftBatch))
            return run(step)

        return checked_run

    def turns(self, until: DraftMemoryState, most: int = 300) -> None:
        """Turn until the memory is somewhere; copies end at once."""
        for _ in range(most):
            self.weights.ended = True
            self.turn()
            if self.state is until:
                return
        raise AssertionError(f"the memory is {self.state}")

    def rest(self, seconds: float) -> None:
        """Let time pass with nothing to run."""
        for _ in range(int(seconds / 0.01) + 2):
            self.now += 0.01
            self.turn()


def crowd(pair: Lending, count: int = 3) -> None:
    """Submit more than there is KV for."""
    for request in range(1, count + 1):
        pair.submit([request, 2, 3] * 20, 60, request)


def check_texts(pair: Lending, count: int = 3) -> None:
    for request in range(1, count + 1):
        pair.run(request)
        assert pair.text(request) == pair.expected([request, 2, 3] * 20, 60)


def test_pressure_lends_the_drafts_memory_and_texts_stay() -> None:
    pair = Lending()
    crowd(pair)
    pair.turns(DraftMemoryState.ON_HOST)
    assert pair.target_kv_cache.blocks == pair.own + LENT
    assert pair.draft_kv_cache.blocks == 0
    assert pair.target.report().planner_choice == Choice.MEMORY_LENT
    check_texts(pair)
    report = pair.colocated.report().memory
    assert report is not None
    assert report.draft is DraftMemoryState.ON_HOST
    assert (report.target_kv_bytes, report.draft_kv_bytes) == (100 * (pair.own + LENT), 0)
    assert (report.draft_weight_bytes, report.expansions) == (0, 1)


def test_a_check_of_drafting_that_gains_much_lends_nothing() -> None:
    pair = Lending()
    checking = PolicySettings(version=2, off_below_percent=1)  # 0 makes no checks
    pair.target.row_selector.set_policy(checking, pair.now)
    switch = pair.target.row_selector.switch
    gain = 20.0  # by step costs that the fake's passes do not take
    while switch.state is not Drafting.CHECK and pair.now < 60.0:
        pair.now += 0.5
        switch.observe(gain * 0.5, 0.5, pair.now)
    assert switch.state is Drafting.CHECK
    pair.target.row_selector.decide_drafting()
    assert not pair.target.row_selector.wants_any_drafts
    crowd(pair)
    short = 0
    while switch.state is Drafting.CHECK:
        pair.turn()
        short += pair.target.admission.kv_short
        assert pair.state is DraftMemoryState.ON_DEVICE
    assert short > 3
    assert pair.target.row_selector.account.present.gain > 2.0
    check_texts(pair)


def test_passes_of_the_draft_are_no_steps_of_pressure() -> None:
    pair = Lending()
    crowd(pair)
    short_steps = 0
    while pair.state is DraftMemoryState.ON_DEVICE:
        step = pair.colocated.next(pair.now)
        if pair.state is not DraftMemoryState.ON_DEVICE:
            break
        assert step is not None
        pair.now += 0.001
        pair.colocated.settle(step, pair.colocated.run(step), pair.now)
        if not isinstance(step, DraftBatch):
            short = pair.target.admission.kv_short
            short_steps = short_steps + 1 if short else 0
    assert short_steps == 3


def test_drafting_that_was_not_measured_yet_lends_nothing() -> None:
    pair = Lending()
    pair.target.row_selector.restart(pair.now)
    crowd(pair)
    for _ in range(20):
        pair.turn()
        assert pair.state is DraftMemoryState.ON_DEVICE
    assert pair.target.admission.kv_short
    pair.measure(1.0, 6.0)
    pair.turns(DraftMemoryState.ON_HOST)


def test_calm_brings_it_back_without_a_request_and_drafting_with_it() -> None:
    pair = Lending()
    crowd(pair)
    pair.turns(DraftMemoryState.ON_HOST)
    check_texts(pair)
    pair.turn()
    assert pair.colocated.max_wait(pair.now) == pytest.approx(CALM, abs=0.06)
    pair.weights.ended = False
    pair.rest(CALM)
    assert pair.state is DraftMemoryState.RELOADING
    assert pair.target_kv_cache.blocks == pair.own, "given back before the copy begins"
    assert pair.colocated.max_wait(pair.now) == pytest.approx(0.005)
    pair.weights.ended = True
    pair.turn()
    assert pair.state is DraftMemoryState.ON_DEVICE
    assert pair.colocated.max_wait(pair.now) is None
    told = [m.memory.draft for m in pair.outbox if isinstance(m, EngineReport) and m.memory]
    assert told == [DraftMemoryState.ON_HOST, DraftMemoryState.ON_DEVICE], "an idle engine tells"
    assert pair.draft_kv_cache.blocks == pair.draft_own
    pair.submit([7, 8, 9], 40, 9)
    assert pair.run(9).usage.accepted_rows > 0
    assert pair.text(9) == pair.expected([7, 8, 9], 40)


def test_blocks_come_with_the_end_of_the_copy_not_with_its_order() -> None:
    pair = Lending()
    crowd(pair)
    for _ in range(300):
        pair.turn()
        if pair.state is DraftMemoryState.OFFLOADING:
            break
    for _ in range(5):
        pair.turn()
    assert pair.state is DraftMemoryState.OFFLOADING
    assert pair.target_kv_cache.blocks == pair.own
    pair.weights.ended = True
    pair.turn()
    assert pair.target_kv_cache.blocks == pair.own + LENT


def test_a_copy_that_fails_gives_the_draft_its_work_back() -> None:
    pair = Lending()
    crowd(pair)
    for _ in range(300):
        pair.turn()
        if pair.state is DraftMemoryState.OFFLOADING:
            break
    pair.weights.broken = True
    pair.turn()
    assert pair.state is DraftMemoryState.ON_DEVICE
    assert pair.draft_kv_cache.blocks == pair.draft_own
    pair.weights.broken = False
    check_texts(pair)


def test_a_copy_that_cannot_begin_costs_no_request() -> None:
    pair = Lending()
    pair.weights.refused = True
    crowd(pair)
    check_texts(pair)
    assert pair.state is DraftMemoryState.ON_DEVICE
    assert pair.target.report().planner_choice != Choice.MEMORY_LENT
    pair.weights.refused = False
    pair.rest(0.1)
    pair.measure(1.0, 6.0)
    for request in (4, 5, 6):
        pair.submit([request, 2, 3] * 20, 60, request)
    pair.turns(DraftMemoryState.ON_HOST)
    pair.weights.refused = True
    for request in (4, 5, 6):
        pair.run(request)
    pair.rest(2 * CALM)
    assert pair.state is DraftMemoryState.ON_HOST
    assert pair.target_kv_cache.blocks == pair.own + LENT
    pair.weights.refused = False
    pair.rest(2 * CALM)
    pair.turns(DraftMemoryState.ON_DEVICE)


def test_a_session_that_holds_kv_puts_lending_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Lending()
    monkeypatch.setattr(pair.draft_kv_cache, "contract", lambda count: None)
    crowd(pair)
    check_texts(pair)
    assert pair.state is DraftMemoryState.ON_DEVICE
    assert pair.draft_kv_cache.blocks == pair.draft_own
    monkeypatch.undo()
    pair.submit([7, 8, 9], 40, 9)
    assert pair.run(9).usage.accepted_rows > 0


def test_sessions_that_open_at_a_return_to_drafting_catch_up() -> None:
    """The target does not wait for a draft that is behind, so chunks between passes must do it."""
    pair = ColocatedPair()
    policy = pair.target.row_selector.policy
    off = PolicySettings(version=2, off_below_percent=0, speculate=False)
    pair.target.row_selector.set_policy(off, pair.now)
    pair.submit([1, 2, 3] * 30, 120)
    for _ in range(20):
        pair.turn()
    assert pair.target.stats.counters.draft_rows == 0
    pair.target.row_selector.set_policy(policy, pair.now)
    assert pair.run().usage.accepted_rows > 0
    assert pair.text() == pair.expected([1, 2, 3] * 30, 120)


class Serving(RuleBasedStateMachine):
    """Requests come, go and are cancelled; copies end, or fail, whenever they like."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Lending()
        self.asked: dict[int, tuple[list[int], int]] = {}
        self.cancelled: set[int] = set()

    @rule(first=st.integers(1, 60), repeat=st.integers(1, 30), count=st.integers(1, 40))
    def submit(self, first: int, repeat: int, count: int) -> None:
        request, prompt = len(self.asked) + 1, [first, 2, 3] * repeat
        count = min(count, self.pair.context - len(prompt))
        self.asked[request] = prompt, count
        self.pair.submit(prompt, count, request)

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        request = which % len(self.asked) + 1
        if self.pair.finished(request) is None:
            self.cancelled.add(request)
            self.pair.target.receive(Cancel(request), self.pair.now)

    @rule(count=st.integers(1, 12))
    def turn(self, count: int) -> None:
        for _ in range(count):
            self.pair.turn()

    @rule()
    def wait(self) -> None:
        self.pair.rest(CALM)

    @rule()
    def copy_ends(self) -> None:
        self.pair.weights.ended = True

    @precondition(lambda self: self.pair.lender.memory.moving)
    @rule()
    def copy_fails(self) -> None:
        self.pair.weights.broken = True
        self.pair.turn()
        self.pair.weights.broken = False

    @rule(speculate=st.booleans())
    def set_policy(self, speculate: bool) -> None:
        policy = PolicySettings(version=3, off_below_percent=0, speculate=speculate)
        self.pair.target.row_selector.set_policy(policy, self.pair.now)

    @invariant()
    def memory_is_used_once(self) -> None:
        pair, state = self.pair, self.pair.state
        lent = state is DraftMemoryState.ON_HOST
        assert pair.target_kv_cache.blocks == pair.own + LENT * lent
        away = state is not DraftMemoryState.ON_DEVICE
        assert pair.draft_kv_cache.blocks == (0 if away else pair.draft_own)
        assert not (lent and pair.weights.here)
        assert not (away and pair.draft.sessions.live)

    @invariant()
    def texts_are_those_of_plain_decoding(self) -> None:
        for request, (prompt, count) in self.asked.items():
            end = self.pair.finished(request)
            if end is None or request in self.cancelled:
                continue
            assert end.finish is Finish.LENGTH
            assert self.pair.text(request) == self.pair.expected(prompt, count)
            self.cancelled.add(request)  # looked at once

    def teardown(self) -> None:
        for request in self.asked:
            self.pair.weights.ended = True
            self.pair.run(request)
        self.texts_are_those_of_plain_decoding()
        assert self.pair.target_kv_cache.used == 0


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
