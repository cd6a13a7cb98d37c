"""Control of a pipelined target's drafts, given the policies of other targets."""

import dataclasses

import pytest

from outrider.contract.planning import PlannerKind, TableEntry
from outrider.contract.settings import WHOLE_PASSES, PolicySettings
from outrider.worker.messages import SetPolicy
from outrider.worker.speculation.planners import switch_for
from outrider.worker.speculation.switch import Drafting
from outrider.worker.target.pipelined.draft_control import PipelinedDraftControl
from tests.unit.worker.engine.pipelined_engine import Target

POLICY = PolicySettings(version=2, static_table=(TableEntry(first=1, draft_tokens=3),))


@pytest.mark.parametrize("planner", WHOLE_PASSES)
def test_drafts_that_lose_go_off_whatever_planner_is_named(planner: PlannerKind) -> None:
    control = PipelinedDraftControl(PolicySettings(), switch_for(PolicySettings(), 0.0))
    control.set_policy(dataclasses.replace(POLICY, planner=planner), 0.0)
    control.restart(0.0)
    for step in range(1, 500):
        control.count(0.005, True, 0.0, step * 0.01)
    assert control.switch.state is Drafting.OFF


def test_a_policy_of_another_target_changes_nothing_else() -> None:
    control = PipelinedDraftControl(PolicySettings(), switch_for(PolicySettings(), 0.0))
    switch = control.switch
    bandit = dataclasses.replace(POLICY, planner=PlannerKind.BANDIT, depth=3, drafts=("one:1",))
    control.set_policy(bandit, 1.0)
    assert control.switch is switch, "it goes on as it was"
    assert control.policy == dataclasses.replace(bandit, planner=PlannerKind.GOODPUT)


@pytest.mark.parametrize(
    ("named", "runs"),
    [
        (PlannerKind.GOODPUT, "goodput"),
        (PlannerKind.OFF, "off"),
        (PlannerKind.BANDIT, "goodput"),
        (PlannerKind.STATIC, "goodput"),
    ],
)
def test_the_planner_that_runs_is_reported(named: PlannerKind, runs: str) -> None:
    scheduler = Target().engine.scheduler
    scheduler.receive(SetPolicy(dataclasses.replace(POLICY, planner=named)), 0.0)
    assert scheduler.report().planner == runs
