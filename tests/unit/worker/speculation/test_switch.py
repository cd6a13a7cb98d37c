"""The switch: what drafting may lose, at which loads it is on, and how it comes back."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.gain import (
    ADVANCE_SECONDS,
    LOSS_SHARE,
    MEMORY_SECONDS,
    GainAccount,
)
from outrider.worker.speculation.switch import PROBE_SECONDS, Drafting, Switch, SwitchSettings
from outrider.worker.target.draft_switch import DraftSwitch

STEP = 0.01


@dataclass
class Driven:
    """A switch, its clock, and what drafting has lost."""

    predict: Callable[[int], float] = lambda sequences: 2.0
    settings: SwitchSettings = field(default_factory=SwitchSettings)
    sequences: int = 1
    now: float = 0.0
    lost: float = 0.0
    """Seconds over plain decoding of the same tokens."""
    drafted: float = 0.0

    def __post_init__(self) -> None:
        self.account = GainAccount(self.predict)
        self.switch = Switch(self.account, 0.0, self.settings)
        self.switch.enter(self.sequences, 0.0)

    @property
    def state(self) -> Drafting:
        return self.switch.state

    def run(self, seconds: float, gain: float, sequences: int = 1, scale: float = 1.0) -> None:
        """Run steps of 10 ms with this gain while drafting; `scale`: over the step costs."""
        end = self.now + seconds
        while self.now < end:
            self.switch.enter(sequences, self.now)
            on = self.switch.drafting
            self.now += STEP
            plain = STEP * gain if on else STEP
            self.lost += STEP - plain
            self.drafted += STEP * on
            self.switch.observe(plain / scale, STEP, self.now)

    def restart(self) -> None:
        """Go on with a new switch, as when a draft joins."""
        self.account.forget_drafts()
        self.switch = Switch(self.account, self.now, self.settings)


def most_lost(driven: Driven, loads: int = 1) -> float:
    """Return the seconds that drafting may have lost at so many loads."""
    return LOSS_SHARE * driven.now + loads * (ADVANCE_SECONDS + 4 * STEP)


def phases_of(
    seconds: tuple[float, float], most: int
) -> st.SearchStrategy[list[tuple[float, float, int]]]:
    """Phases of so many seconds: each one's seconds, gain of drafting, and a count up to `most`."""
    phase = st.tuples(st.floats(*seconds), st.floats(0.1, 3.0), st.integers(1, most))
    return st.lists(phase, min_size=1, max_size=12)


@given(phases_of((0.2, 200.0), 3))
@settings(max_examples=25, deadline=None)
def test_nothing_that_changes_however_often_costs_more_than_budgets_allow(
    phases: list[tuple[float, float, int]],
) -> None:
    driven = Driven()
    for seconds, gain, sequences in phases:
        driven.run(seconds, gain, sequences)
        assert driven.lost <= most_lost(driven, 3)


@given(phases_of((0.005, 40.0), 100))
@settings(max_examples=20, deadline=None)
def test_drafts_that_join_however_often_cost_no_more(
    phases: list[tuple[float, float, int]],
) -> None:
    """Each phase is so many lives of a switch that end after some seconds, whatever it does."""
    driven = Driven()
    for seconds, gain, lives in phases:
        for _ in range(min(lives, 1 + int(100 / seconds))):
            driven.run(seconds, gain)
            driven.restart()
            assert driven.lost <= most_lost(driven)


def test_gains_that_alternate_with_the_switch_itself_cost_no_more() -> None:
    """The worst plant: drafting pays while it is probed, and loses as soon as it is on."""
    driven = Driven()
    while driven.now < 3000:
        paying = driven.state in (Drafting.PROBE, Drafting.OFF)
        driven.run(STEP / 2, 2.0 if paying else 0.3)
    assert driven.lost <= most_lost(driven)


def test_a_draft_that_loses_everything_is_off_within_a_second() -> None:
    driven = Driven()
    driven.run(1.0, gain=0.1)
    assert not driven.switch.drafting


def test_drafting_that_gains_too_little_goes_off_and_stays_off() -> None:
    driven = Driven()
    driven.run(5.0, gain=1.02)
    assert driven.state is Drafting.OFF
    driven.drafted = 0.0
    driven.run(300.0, gain=1.02)
    assert driven.drafted < 300.0 * PROBE_SECONDS / MEMORY_SECONDS


def test_between_the_thresholds_the_switch_stays_as_it_is() -> None:
    driven = Driven()
    driven.run(30.0, gain=1.1)
    assert driven.switch.drafting
    driven.run(30.0, gain=0.9)
    driven.drafted = 0.0
    driven.run(300.0, gain=1.1)
    assert driven.drafted < 300.0 * PROBE_SECONDS / MEMORY_SECONDS


def test_a_probe_that_pays_brings_drafting_back() -> None:
    driven = Driven()
    driven.run(5.0, gain=0.9)
    assert driven.state is Drafting.OFF
    driven.run(MEMORY_SECONDS + 3 * PROBE_SECONDS, gain=1.5)
    assert driven.state is Drafting.ON


def test_drafting_that_lost_much_is_probed_once_its_price_is_earned_back() -> None:
    driven = Driven()
    driven.run(10.0, gain=0.2)
    assert driven.lost > ADVANCE_SECONDS / 2
    driven.drafted = 0.0
    driven.run(20.0, gain=1.5)
    assert driven.drafted == 0.0
    driven.run(ADVANCE_SECONDS / LOSS_SHARE, gain=1.5)
    assert driven.state is Drafting.ON


def test_checks_of_drafting_that_pays_cost_under_one_percent() -> None:
    driven = Driven()
    driven.run(600.0, gain=2.0)
    assert 0.985 * 600 < driven.drafted < 600


def test_drafting_that_is_never_to_go_off_is_never_interrupted() -> None:
    driven = Driven(settings=SwitchSettings(off_below=0.0))
    for sequences in (1, 16, 2):
        driven.run(100.0, gain=0.5, sequences=sequences)
    assert driven.drafted == pytest.approx(driven.now)


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.5])
@pytest.mark.parametrize(("gain", "on"), [(1.2, True), (0.9, False)])
def test_step_costs_of_another_machine_change_nothing(scale: float, gain: float, on: bool) -> None:
    driven = Driven()
    driven.run(60.0, gain, scale=scale)
    assert driven.switch.drafting == on
    assert driven.account.present.gain == pytest.approx(gain, rel=0.05)


def falls(sequences: int) -> float:
    """A gain that falls with the load."""
    return 2.0 / sequences


def test_where_drafting_should_lose_it_is_off_before_the_first_step() -> None:
    driven = Driven(falls)
    driven.run(60.0, gain=2.0)
    driven.drafted = driven.lost = 0.0
    driven.run(8.0, gain=0.5, sequences=8)
    assert driven.drafted == driven.lost == 0.0
    driven.run(STEP, gain=2.0)
    assert driven.switch.drafting, "and on again as the load falls"


def test_a_prediction_that_was_too_low_is_found_out() -> None:
    driven = Driven(falls)
    driven.run(2 * ADVANCE_SECONDS / LOSS_SHARE, gain=1.5, sequences=8)
    assert driven.state is Drafting.ON


def test_a_prediction_that_was_too_high_loses_its_budget_once() -> None:
    driven = Driven()
    for _ in range(10):
        driven.run(60.0, gain=2.0)
        driven.lost = 0.0
        driven.run(8.0, gain=0.5, sequences=8)
    assert driven.lost < LOSS_SHARE * 80.0


def test_drafting_that_has_used_up_its_budget_rests_whatever_it_gained_before() -> None:
    driven = Driven()
    driven.run(60.0, gain=2.0)
    driven.drafted = 0.0
    driven.run(10.0, gain=0.1)
    assert driven.drafted < 2 * ADVANCE_SECONDS


def test_a_check_measures_plain_decoding_anew() -> None:
    """The machine has become slower, with drafts and without."""
    driven = Driven()
    driven.run(100.0, gain=1.3)
    driven.drafted = 0.0
    driven.run(30.0, gain=1.3, scale=1.5)
    assert driven.drafted > 29.0
    assert driven.account.present.scale == pytest.approx(1.5, rel=0.05)


def test_probes_that_fail_are_the_rarer_the_more_their_return_costs() -> None:
    drafted = []
    for seconds in (0.0, 2 * ADVANCE_SECONDS):
        driven = Driven()
        driven.run(10.0, gain=0.9)
        driven.switch.return_seconds = seconds
        driven.drafted = 0.0
        driven.run(300.0, gain=0.9)
        drafted.append(driven.drafted)
    assert 0.0 < drafted[1] < 0.4 * drafted[0]


def comes_back_after_a_second(driven: Driven) -> None:
    """Check that a return of a second is taken up once a stay away has forgone as much."""
    driven.switch.return_seconds = driven.switch.missed_seconds = 1.0
    driven.run(0.5, gain=2.0)
    assert not driven.switch.drafting
    driven.run(1.0, gain=2.0)
    assert driven.switch.drafting


def test_a_return_that_costs_more_than_a_stay_has_forgone_waits() -> None:
    driven = Driven(falls)
    driven.run(10.0, gain=2.0)
    driven.run(2.0, gain=0.5, sequences=8)
    comes_back_after_a_second(driven)


def test_a_gain_that_was_measured_long_ago_pays_for_a_return() -> None:
    driven = Driven(falls)
    driven.run(5.0, gain=2.0)
    assert driven.account.present.budget.spare < ADVANCE_SECONDS, "no probe can be paid"
    driven.run(2 * MEMORY_SECONDS, gain=0.5, sequences=8)
    comes_back_after_a_second(driven)


def test_an_idle_worker_decides_nothing() -> None:
    driven = Driven()
    driven.run(1.0, gain=0.99)
    driven.switch.observe(0.005, 0.01, 100.0)
    assert driven.switch.drafting


def test_drafting_that_a_policy_allows_again_starts_anew() -> None:
    control = DraftSwitch(PolicySettings())
    for second in range(1, 60):
        control.enter(1, float(second))
        control.saw_drafting(0.5, 1.0, float(second))
    assert not control.switch.drafting
    control.set_policy(PolicySettings(version=1, speculate=False), 60.0)
    control.set_policy(PolicySettings(version=2), 61.0)
    assert control.account.present.drafted.spent == 0.0


def test_a_check_of_slow_steps_is_not_deceived_by_the_one_that_ends_drafting() -> None:
    switch, now = Switch(GainAccount(lambda sequences: 2.0), 0.0), 0.0
    switch.enter(1, now)
    step, gain, before = 0.15, 0.8, Drafting.ON
    for _ in range(200):
        ends_drafting = switch.state is Drafting.CHECK and before is not Drafting.CHECK
        before = switch.state
        spent = 3 * step if ends_drafting else step
        now += spent
        switch.observe(step * gain if switch.drafting else step, spent, now)
        if switch.state is Drafting.OFF:
            break
    assert switch.state is Drafting.OFF
    assert now < 10.0
