"""`outrider top` counts right between samples, and shows a row for each worker."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime

import pytest
from rich.console import Console

from outrider.cli.top import WorkerSample, as_fields, difference, drafting, frame, rates
from outrider.client import Counters, Link, LinkState, PolicySettings, StageGroup, State
from outrider.contract.settings import Role

NOW = datetime(2026, 1, 2, 3, 4, 5)
DRAFT = "127.0.0.1:7002"
EARLY = Counters(
    generation_tokens=100, tokens=90, passes=60, steps=60, step_rows=300, plain_seconds=2.0,
    spent_seconds=1.0, drafted_passes=50, draft_rows=200, accepted_rows=30,
    passes_by_accepted=(30, 30, 0), kv_slots=1000, kv_slots_used=250,
)  # fmt: skip
LATE = dataclasses.replace(
    EARLY, generation_tokens=300, tokens=290, passes=160, steps=110, step_rows=800,
    plain_seconds=5.0, spent_seconds=3.0, drafted_passes=150, draft_rows=600, accepted_rows=130,
    passes_by_accepted=(70, 50, 40),
)  # fmt: skip
DOWN = WorkerSample(DRAFT, Role.DRAFT, 3.0, None, "refused")


def state(counters: Counters = EARLY, life: int = 1, role: Role = Role.TARGET) -> State:
    link = Link(
        address=DRAFT, state=LinkState.CONNECTING, detail="no answer", revision="", incarnation=0
    )
    return State(
        role=role, model="tiny", revision="r", incarnation=life, ready=True, draining=False,
        policy=PolicySettings(), links=(link,) if role is Role.TARGET else (), running=3,
        waiting=2, counters=counters, dtype="fp32", threads=1, step_seconds={}, drafting="probe",
        planner_choice="no_row_pays",
    )  # fmt: skip


def sample(
    at: float, counters: Counters = EARLY, life: int = 1, role: Role = Role.TARGET
) -> WorkerSample:
    return WorkerSample("a:1", role, at, state(counters, life, role))


def drawn(
    before: Mapping[str, WorkerSample], *samples: WorkerSample, width: int = 100
) -> list[str]:
    console = Console(width=width)
    with console.capture() as shown:
        console.print(frame(before, samples, NOW))
    return [" ".join(line.split()) for line in shown.get().splitlines()]


def test_rates_are_of_what_was_counted_between_two_looks() -> None:
    found = rates(sample(10.0), sample(12.0, LATE))
    assert (found["tokens_per_second"], found["tokens_per_pass"]) == (100, 2)
    assert (found["acceptance_rate"], found["gain"], found["hit_rate"]) == (0.25, 1.5, None)


def test_what_predictions_bring_is_said_where_there_are_any() -> None:
    helped = dataclasses.replace(LATE, source_accepted=(50, 10, 0, 40))
    found = rates(
        sample(10.0, dataclasses.replace(EARLY, source_accepted=(0, 0, 0, 0))), sample(12.0, helped)
    )
    assert found["predicted_tokens_per_second"] == 20
    early = sample(10.0, dataclasses.replace(EARLY, source_accepted=(0, 0, 0, 0)))
    shown = drawn({"a:1": early}, sample(12.0, helped), width=140)
    assert any("20.0 tok/s predicted" in line for line in shown)
    assert not any("predicted" in line for line in drawn({"a:1": sample(10.0)}, sample(12.0, LATE)))


def test_a_draft_is_rated_by_what_its_targets_committed() -> None:
    found = rates(sample(10.0, role=Role.DRAFT), sample(12.0, LATE, role=Role.DRAFT))
    assert (found["tokens_per_second"], found["tokens_per_pass"]) == (100, None)


def test_a_worker_that_restarted_or_was_gone_has_no_rates() -> None:
    gone = WorkerSample("a:1", Role.TARGET, 1.0, None, "gone")
    assert rates(sample(1.0, LATE), sample(2.0, EARLY, life=2)) == {}
    assert rates(gone, sample(2.0)) == rates(sample(1.0), gone) == rates(None, sample(2.0)) == {}


def test_a_difference_is_of_every_field() -> None:
    assert difference(Counters(), LATE) == LATE
    assert difference(LATE, LATE) == Counters(passes_by_accepted=(0, 0, 0))


@pytest.mark.parametrize("width", [80, 100])
def test_a_frame_shows_workers_and_what_does_not_work(width: int) -> None:
    lines = drawn({"a:1": sample(1.0)}, sample(3.0, LATE), DOWN, width=width)
    row = "a:1 target ready 100.0 2.00 25% 1.50 3 2 25% probe:"
    assert any(line.startswith(row) for line in lines)
    assert f"{DRAFT} draft down" in lines
    text = " ".join(lines)
    assert "a:1 has no link to 127.0.0.1:7002: connecting. no answer" in text
    assert "127.0.0.1:7002 does not answer: refused" in text


def test_a_frame_says_which_stage_is_missing() -> None:
    group = StageGroup(up=False, detail="stage 1 is gone", losses=0)
    one = sample(1.0)._replace(state=dataclasses.replace(state(), stages=group))
    assert "a:1 has not all of its stages: stage 1 is gone" in drawn({}, one)


def test_drafting_that_is_not_on_has_the_planners_reason() -> None:
    assert drafting(state()) == "probe: no row pays"
    assert drafting(dataclasses.replace(state(), drafting="on")) == "on"
    assert drafting(dataclasses.replace(state(), drafting="off", planner_choice="")) == "off"


def test_the_json_has_the_same_figures() -> None:
    shown = as_fields({"a:1": sample(1.0)}, [sample(3.0, LATE), DOWN], NOW)
    assert [one["up"] for one in shown["workers"]] == [True, False]
    assert shown["workers"][0]["now"]["tokens_per_second"] == 100
    assert shown["workers"][0]["state"]["running"] == 3
    assert shown["workers"][1]["error"] == "refused"
