"""The guard of the switch, its prices and its predictions, in environments that change."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.guard import LossGuard
from outrider.worker.speculation.switch import Drafting, Switch, SwitchSettings
from outrider.worker.speculation.switch_costs import SwitchCosts
from outrider.worker.target.draft_switch import switch_for

STEP = 0.01
SETTINGS = SwitchSettings()


@dataclass
class Driven:
    """A switch, its clock, and what drafting has lost."""

    switch: Switch
    now: float = 0.0
    lost: float = 0.0
    """Seconds over plain decoding of the same tokens."""
    drafted: float = 0.0

    def run(self, seconds: float, gain: float, sequences: int = 1) -> None:
        """Run steps of 10 ms with this gain while drafting."""
        end = self.now + seconds
        while self.now < end:
            on = self.switch.drafting
            self.now += STEP
            plain = STEP * gain if on else STEP
            self.lost += STEP - plain
            self.drafted += STEP * on
            self.switch.observe(self.now, plain, STEP, sequences)

    def restart(self) -> None:
        """Go on with a new switch, as when a draft joins."""
        self.switch = switch_for(PolicySettings(), self.now, self.switch)


def phases_of(
    seconds: tuple[float, float], most: int
) -> st.SearchStrategy[list[tuple[float, float, int]]]:
    """Phases of so many seconds: each one's seconds, gain of drafting, and a count up to `most`."""
    phase = st.tuples(st.floats(*seconds), st.floats(0.1, 3.0), st.integers(1, most))
    return st.lists(phase, min_size=1, max_size=12)


@given(phases_of((0.2, 200.0), 64))
@settings(max_examples=25, deadline=None)
def test_nothing_that_changes_however_often_costs_more_than_the_guard_allows(
    phases: list[tuple[float, float, int]],
) -> None:
    """Against plain decoding, drafting and all that is tried lose 3 % and the advance at most."""
    driven = Driven(Switch(0.0))
    for seconds, gain, sequences in phases:
        driven.run(seconds, gain, sequences)
        bound = SETTINGS.guard_share * driven.now + SETTINGS.guard_seconds + 2 * STEP
        assert driven.lost <= bound


@given(phases_of((0.005, 40.0), 100))
@settings(max_examples=20, deadline=None)
def test_drafts_that_join_however_often_cost_no_more(
    phases: list[tuple[float, float, int]],
) -> None:
    """Each phase is so many lives of a switch that end after some seconds, whatever it does."""
    driven = Driven(Switch(0.0))
    for seconds, gain, lives in phases:
        for _ in range(min(lives, 1 + int(100 / seconds))):
            driven.run(seconds, gain)
            driven.restart()
            bound = SETTINGS.guard_share * driven.now + SETTINGS.guard_seconds + 2 * STEP
            assert driven.lost <= bound


def test_a_link_that_flaps_does_not_lose_the_advance_each_time() -> None:
    driven = Driven(Switch(0.0))
    for _ in range(200):
        driven.run(3.0, gain=0.3)
        driven.restart()
    assert driven.lost <= 0.03 * driven.now + SETTINGS.guard_seconds + 2 * STEP


def test_drafting_that_used_up_the_guard_rests_first_and_then_comes_back() -> None:
    driven = Driven(Switch(0.0, SwitchSettings(guard_seconds=0.5)))
    driven.run(0.8, gain=0.3)
    driven.restart()
    assert driven.switch.state is Drafting.OFF
    driven.run(40.0, gain=1.5)
    assert driven.switch.state is Drafting.ON


def test_what_went_off_is_charged_once() -> None:
    driven = off()
    spare = driven.switch.guard.spare
    driven.restart()
    assert driven.switch.guard.spare == spare
    assert driven.switch.drafting


def test_gains_that_alternate_with_the_switch_itself_cost_no_more() -> None:
    """The worst plant: drafting pays while it is probed, and loses as soon as it is on."""
    driven = Driven(Switch(0.0))
    while driven.now < 3000:
        paying = driven.switch.state in (Drafting.PROBE, Drafting.OFF)
        driven.run(STEP / 2, 2.0 if paying else 0.3)
    assert driven.lost <= 0.03 * driven.now + SETTINGS.guard_seconds + 2 * STEP


def test_a_draft_that_loses_everything_is_off_before_its_dwell_is_over() -> None:
    driven = Driven(Switch(0.0))
    driven.run(4.0, gain=0.3)
    assert not driven.switch.drafting
    assert driven.lost < SETTINGS.guard_seconds + 2 * STEP


def test_a_probe_that_loses_everything_ends_early() -> None:
    driven = Driven(Switch(0.0, SwitchSettings(guard_seconds=0.3)))
    driven.run(40.0, gain=0.2)
    drafted = driven.drafted
    driven.run(2000.0, gain=0.2)
    probes = driven.drafted - drafted
    assert 0.0 < probes * 0.8 <= 0.03 * 2000 + 0.3


def test_checks_of_drafting_that_pays_cost_under_one_percent() -> None:
    driven = Driven(Switch(0.0))
    driven.run(600.0, gain=2.0)
    assert driven.drafted > 0.99 * 600


@pytest.mark.parametrize(
    ("sequences", "state"), [(8, Drafting.OFF), (4, Drafting.OFF), (3, Drafting.ON)]
)
def test_plain_decoding_is_measured_anew_where_the_load_doubles(
    sequences: int, state: Drafting
) -> None:
    driven = Driven(Switch(0.0))
    driven.run(400.0, gain=2.0, sequences=2)
    assert driven.switch.drafting  # and the next check is minutes away
    for _ in range(
        1000
    ):  # ten seconds of steps that are 1.5 times as fast as their costs, drafts or not
        driven.now += STEP
        driven.switch.observe(driven.now, 1.5 * STEP, STEP, sequences)
    assert driven.switch.state is state


def test_drafting_that_is_never_to_go_off_is_never_interrupted() -> None:
    driven = Driven(switch_for(PolicySettings(off_below_percent=0), 0.0))
    for sequences in (1, 16, 2):
        driven.run(100.0, gain=0.5, sequences=sequences)
    assert driven.drafted == pytest.approx(driven.now)


def off(gain: float = 0.8, sequences: int = 16) -> Driven:
    driven = Driven(Switch(0.0))
    driven.run(10.0, gain, sequences)
    assert driven.switch.state is Drafting.OFF
    return driven


@pytest.mark.parametrize(("left", "state"), [(11, Drafting.ON), (14, Drafting.OFF)])
def test_a_quarter_less_load_is_reason_to_try_again_soon(left: int, state: Drafting) -> None:
    driven = off()
    driven.run(6.0, gain=1.5, sequences=16)
    assert driven.switch.state is Drafting.OFF
    driven.run(4.0, gain=1.5, sequences=left)
    assert driven.switch.state is state


@pytest.mark.parametrize(
    ("came_back", "went_off", "left", "state"),
    [(4, 16, 11, Drafting.ON), (16, 10, 10, Drafting.OFF)],
)
def test_the_load_at_which_drafting_came_back_is_not_that_at_which_it_goes_off(
    came_back: int, went_off: int, left: int, state: Drafting
) -> None:
    driven = off()
    driven.run(20.0, gain=1.5, sequences=came_back)
    assert driven.switch.state is Drafting.ON
    while driven.switch.state is not Drafting.OFF:
        driven.run(STEP, gain=0.8, sequences=went_off)
    driven.run(4.0, gain=1.5, sequences=left)
    assert driven.switch.state is state


def test_the_same_load_that_goes_on_is_not() -> None:
    driven = off()
    driven.run(9.0, gain=1.5, sequences=13)
    assert driven.switch.state is Drafting.OFF


def test_a_return_that_costs_more_than_it_will_bring_waits_but_not_for_ever() -> None:
    """Coming back is thought to bring 15 % of 60 s."""
    for cost, probed in ((1.0, True), (30.0, False)):
        driven = off()
        driven.switch.return_seconds = cost
        driven.run(60.0, gain=1.0)
        assert (driven.switch._probe_every > SETTINGS.probe_every_seconds) == probed
    driven.run(SETTINGS.probe_at_most_every_seconds, gain=1.5)
    assert driven.switch.drafting


def test_stays_that_were_short_are_predicted_to_be_short_again() -> None:
    patient, hasty = off(), off()
    for driven, stay in ((patient, 300.0), (hasty, 17.0)):
        for _ in range(4):
            driven.run(stay, 1.4, sequences=16)
            driven.run(6.0, 0.3, sequences=16)
            driven.run(30.0, 0.9, sequences=16)
    assert hasty.switch._dwell.seconds < 0.6 * SETTINGS.dwell_prior_seconds
    assert patient.switch._dwell.seconds > 2 * SETTINGS.dwell_prior_seconds


def test_a_guard_lends_no_more_than_its_advance_and_what_it_earned() -> None:
    guard = LossGuard(0.03, 2.0)
    assert guard.affords(5.0)
    guard.lose(1.5)
    assert not guard.affords(1.0)
    guard.unearned += 100.0
    assert guard.spare == pytest.approx(2.0)
    guard.lose(-7.0)
    assert guard.spare == pytest.approx(2.0)


def test_returns_cost_what_they_were_seen_to_cost() -> None:
    costs = SwitchCosts()
    assert costs.seconds(400, 2) == pytest.approx(2 * costs.seconds(200, 2))
    costs.learn(400, 2, 0.5)
    assert costs.seconds(300, 2) == 0.5, "measured, for lags of 256 to 511"
    before = SwitchCosts().seconds(100, 8)
    assert costs.seconds(100, 8) > before, "and tokens of others are thought to cost more"
    costs.learn(400, 2, -1.0)
    assert costs.seconds(300, 2) == pytest.approx(0.35)
