"""Control of a pipelined target's drafts, given the policies of other targets."""

import dataclasses

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.messages import Submit
from outrider.worker.pipeline.draft_control import PipelinedDraftControl, SourceStep
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.speculation.switch import Drafting
from outrider.worker.tree.mirror import DRAFT, SUFFIX

WITH_TEXT = PolicySettings(sources=(SourceKind.DRAFT, SourceKind.SUFFIX))
COSTS = 0.01 * np.arange(1, 9)
"""Seconds of a stage with 0, 1, … 7 node rows."""
POLICY = PolicySettings(version=2)


def submit(speculate: bool = True) -> Submit:
    return Submit(0, np.array([1], np.int32), SamplingParams(), 4, (), speculate, 0.0)


def test_drafts_that_lose_go_off() -> None:
    control = PipelinedDraftControl(PolicySettings())
    control.set_policy(POLICY, 0.0)
    control.restart(0.0)
    for step in range(1, 500):
        control.count(0.005, True, 0.0, step * 0.01)
    assert control.switch.state is Drafting.OFF


def test_a_policy_of_another_target_changes_nothing_else() -> None:
    control = PipelinedDraftControl(PolicySettings())
    switch = control.switch
    other = dataclasses.replace(POLICY, depth=3, drafts=("one:1",))
    control.set_policy(other, 1.0)
    assert control.switch is switch, "it goes on as it was"
    assert control.policy == other


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ((SourceKind.DRAFT,), 1 << DRAFT),
        ((SourceKind.DRAFT, SourceKind.SUFFIX), 1 << DRAFT | 1 << SUFFIX),
        ((SourceKind.SUFFIX, SourceKind.ANSWERS), 1 << SUFFIX),
        ((SourceKind.ANSWERS,), 0),
    ],
)
def test_sources_that_need_a_whole_target_are_left_out(
    named: tuple[SourceKind, ...], kept: int
) -> None:
    policy = PolicySettings(sources=named)
    first = PipelinedDraftControl(policy)
    told = PipelinedDraftControl(PolicySettings())
    told.set_policy(policy, 0.0)
    for control in (first, told):
        assert control.sources(submit()) == kept
        assert control.sources(submit(speculate=False)) == 0


def test_a_text_that_loses_rests_and_its_draft_goes_on() -> None:
    control = PipelinedDraftControl(WITH_TEXT)
    assert control.sources(submit()) == 1 << DRAFT | 1 << SUFFIX
    step = SourceStep(SourceRows([0, 4, 0, 0], [0, 0, 0, 0], 4), COSTS, 0.01)
    for number in range(1, 100):  # 40 ms of rows a step, and no token of the text
        control.count(0.05, True, 0.0, number * 0.05, step)
        if control.sources(submit()) == 1 << DRAFT:
            break
    assert control.sources(submit()) == 1 << DRAFT
    assert control.switch.state is not Drafting.OFF


def test_what_the_text_brings_is_none_of_the_drafts_gain() -> None:
    alone, helped = (PipelinedDraftControl(WITH_TEXT) for _ in range(2))
    step = SourceStep(SourceRows([0, 4, 0, 0], [0, 4, 0, 0], 4), COSTS, 0.01)
    for number in range(1, 200):
        alone.count(0.03, True, 0.0, number * 0.05)
        spent = helped.count(0.07, True, 0.0, number * 0.09, step)
        assert spent == pytest.approx(0.09)
    assert helped.local.share == pytest.approx((0.04, 0.04))
    assert helped.switch.state is alone.switch.state is Drafting.OFF
