"""What is decided from what is known, without a worker."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from outrider.cli import gpus, processors
from outrider.cli.failures import Failure
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.choose import Chooser
from outrider.cli.placement.estimate import Machine
from outrider.cli.placement.facts import Facts
from outrider.cli.placement.local_service import (
    is_open,
    own_arrangement,
    plain_arrangement,
)
from outrider.cli.placement.machine import machine_for
from outrider.cli.progress import Lines
from outrider.cli.trial import Workshop
from outrider.client import State, Unavailable
from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings, Role
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculativeService, load

TEXT = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "file:///target"}%s}
  draft: {model: {uri: "file:///draft"}%s}
  speculation: {mode: %s}
"""
COSTS = {
    "target": {
        "1": {"rows": {"1": 0.0041, "4": 0.0046, "8": 0.0055}},
        "2": {"rows": {"1": 0.0034, "4": 0.0035, "8": 0.0039}},
    },
    "draft": {"1": {"rows": {"1": 0.0004, "8": 0.0005}}},
}
KNOWN = Facts(costs=COSTS, first_guesses=1000, first_hits=450)


def service(target: str = "", draft: str = "", mode: str = "Adaptive") -> SpeculativeService:
    return load(TEXT % (target, draft, mode))


def chooser(folder: Path, given: SpeculativeService | None = None, **options: int) -> Chooser:
    workshop = Workshop(PlanOptions(cache=str(folder), **options), Lines())
    made = Chooser.of(given or service(), workshop)
    return dataclasses.replace(made, machine=Machine(processors=2))


def test_the_fastest_is_taken_and_one_line_says_why(tmp_path: Path) -> None:
    choice = chooser(tmp_path).decide(KNOWN)
    assert choice.best.arrangement == Arrangement(Placement.COLOCATED, 2)
    line = str(choice)
    assert "\n" not in line
    assert line.startswith("placement Auto takes Colocated, 2 threads: ")
    assert "over plain, 2 threads: Colocated, 2 threads 1." in line
    assert "Separate, 1 + 1 threads" in line
    assert "a row takes 3.40 ms" in line
    assert "45% of the draft's first guesses" in line


def test_a_trial_that_lost_outweighs_what_was_expected(tmp_path: Path) -> None:
    lost = KNOWN.with_trial(Placement.COLOCATED, 0.7)
    choice = chooser(tmp_path).decide(lost)
    assert choice.best.arrangement.placement is not Placement.COLOCATED
    both = lost.with_trial(Placement.SEPARATE, 0.7)
    assert chooser(tmp_path).decide(both).best.arrangement == Arrangement(None, 2)


@pytest.mark.parametrize(("visible", "target_gpus"), [(None, 2), ("0", 2), ("", 0), ("-1", 0)])
def test_targets_are_on_gpus_that_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, target_gpus: int
) -> None:
    monkeypatch.setattr(gpus, "present", lambda: 4)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(gpus.VISIBLE, visible)
    assert machine_for(service(", replicas: 2")).target_gpus == target_gpus


def test_several_targets_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "count", lambda: 4)
    machine = machine_for(service(", replicas: 2, engine: {device: CPU}"))
    made = dataclasses.replace(chooser(Path("unused")), machine=machine)
    four = COSTS["target"] | {"4": {"rows": {"1": 0.0020}}}
    found = made.decide(dataclasses.replace(KNOWN, costs=COSTS | {"target": four})).found
    assert max(e.arrangement.threads for e in found) == 2


@pytest.mark.parametrize(
    ("target", "draft", "measured"),
    [
        ("", "", [(Role.TARGET, True)]),
        ("", ", engine: {maxRunning: 4}", [(Role.TARGET, True)]),
        ("", ", engine: {device: CPU}", [(Role.TARGET, False), (Role.DRAFT, False)]),
        (", engine: {device: CPU}", ", engine: {device: CPU}", [(Role.TARGET, True)]),
        ("", ", placement: Colocated", [(Role.TARGET, True)]),
        ("", ", parallelism: {tensor: 2}", [(Role.TARGET, False), (Role.DRAFT, False)]),
    ],
)
def test_a_draft_is_measured_on_its_own_device(
    tmp_path: Path, target: str, draft: str, measured: list[tuple[Role, bool]]
) -> None:
    found = chooser(tmp_path, service(target, draft)).measurements
    assert [(one.role, one.colocated is not None) for one in found] == measured


def test_facts_of_drafts_with_other_engines_lie_in_other_files(tmp_path: Path) -> None:
    drafts = ("", ", engine: {device: CPU}", ", engine: {device: GPU}", ", engine: {threads: 2}")
    files = [chooser(tmp_path, service("", draft)).file for draft in drafts]
    assert len(set(files)) == len(drafts)
    assert chooser(tmp_path).file == files[0]


def test_numbers_of_threads_that_the_service_names_are_kept(tmp_path: Path) -> None:
    one = chooser(tmp_path, service(", engine: {threads: 1}")).decide(KNOWN)
    assert {e.arrangement.threads for e in one.found} == {1}
    asked = chooser(tmp_path, threads=2).decide(KNOWN)
    assert {e.arrangement.threads for e in asked.found} == {2}


def test_a_draft_with_an_engine_of_its_own_is_no_part_of_the_target(tmp_path: Path) -> None:
    made = chooser(tmp_path, service("", ", engine: {maxRunning: 4}"))
    assert made.allowed == {Placement.SEPARATE}


@pytest.mark.parametrize(
    ("draft", "mode", "expected"),
    [
        ("", "Adaptive", True),
        ("", "Static", True),
        ("", "Disabled", False),
        (", replicas: 0", "Adaptive", False),
        (", placement: Separate", "Adaptive", False),
        (", placement: Colocated", "Adaptive", False),
        (", placement: SamePod", "Adaptive", False),
    ],
)
def test_only_a_draft_that_may_run_and_names_no_place_is_placed(
    draft: str, mode: str, expected: bool
) -> None:
    assert is_open(service("", draft, mode)) is expected


@pytest.mark.parametrize(
    ("draft", "mode", "name"),
    [
        (", placement: Separate", "Static", "Separate, 3 + 1 threads"),
        (", placement: Colocated", "Static", "Colocated, 3 threads"),
        (", placement: Colocated", "Disabled", "plain, 3 threads"),
        (", replicas: 0", "Adaptive", "plain, 3 threads"),
    ],
)
def test_what_a_service_names_is_called_by_its_arrangement(
    tmp_path: Path, draft: str, mode: str, name: str
) -> None:
    workshop = Workshop(PlanOptions(cache=str(tmp_path)), Lines())
    assert own_arrangement(service(", engine: {threads: 3}", draft, mode), workshop).name == name


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("", "plain, 8 threads"),
        (", replicas: 2", "plain, 4 threads"),
        (", parallelism: {tensor: 2}", "plain, 4 threads"),
        (", replicas: 2, parallelism: {tensor: 2, pipeline: 2}", "plain, 1 thread"),
        (", replicas: 9", "plain, 1 thread"),
        (", replicas: 2, engine: {threads: 3}", "plain, 3 threads"),
    ],
)
def test_a_service_without_its_draft_shares_the_processors_among_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, name: str
) -> None:
    monkeypatch.setattr(processors, "count", lambda: 8)
    workshop = Workshop(PlanOptions(cache=str(tmp_path)), Lines())
    assert plain_arrangement(service(target), workshop).name == name


def state(row: float, counters: Counters) -> State:
    return State(
        role=Role.TARGET, model="tiny", revision="", incarnation=0, ready=True, draining=False,
        policy=PolicySettings(), links=(), running=0, waiting=0, counters=counters, dtype="int8",
        threads=2, step_seconds={1: row},
    )  # fmt: skip


def test_a_run_teaches_the_pair_s_acceptance(tmp_path: Path) -> None:
    made = chooser(tmp_path)
    KNOWN.with_trial(Placement.COLOCATED, 0.9).write(made.file)
    counters = Counters(first_guesses=3000, first_hits=2700, passes=3000, tokens=6000)
    made.learn(state(0.0036, counters))
    learnt = Facts.read(made.file)
    assert learnt.acceptance > 0.75
    assert learnt.costs == COSTS
    assert learnt.over_expected == {"Colocated": 0.9}


@pytest.mark.parametrize("row", [0.0010, 0.0120])
def test_passes_that_cost_otherwise_than_in_the_first_run_are_measured_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: float
) -> None:
    made = chooser(tmp_path)
    KNOWN.with_trial(Placement.COLOCATED, 0.9).write(made.file)
    for usual in (0.0036, 0.0030, 0.0050):
        made.learn(state(usual, Counters()))
        assert Facts.read(made.file).costs == COSTS
    assert capsys.readouterr().err == ""
    made.learn(state(row, Counters()))
    said = capsys.readouterr().err
    assert f"a row takes {1e3 * row:.2f} ms, and took 3.60 ms in the first run" in said
    assert "The next start measures and tries arrangements again" in said
    learnt = Facts.read(made.file)
    assert learnt.costs is None
    assert learnt.over_expected == {}
    assert learnt.row_seconds == {}
    assert learnt.first_guesses == KNOWN.first_guesses


def test_whole_arrangements_that_were_timed_decide(tmp_path: Path) -> None:
    made = chooser(tmp_path)
    KNOWN.write(made.file)
    rates = {
        "plain, 2 threads": 250.0,
        "Colocated, 2 threads": 240.0,
        "Separate, 1 + 1 threads": 300.0,
    }
    choice = made.timed(rates)
    assert choice.best.arrangement == Arrangement(Placement.SEPARATE, 1, 1)
    assert choice.best.measured
    assert choice.over_plain(choice.best) == pytest.approx(1.2)
    assert made.decide(Facts.read(made.file)).best == choice.best, "remembered"


LOST = Unavailable("the target is lost", grpc.StatusCode.UNAVAILABLE)


class Service:
    """A running service that drafts so many first guesses, or fails amid its first answer."""

    def __init__(self, outcome: int | Exception) -> None:
        self.outcome = outcome

    async def models(self) -> list[Any]:
        return [SimpleNamespace(has_chat_template=False)]

    async def complete(self, _: str, *, speculate: bool, **__: object) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return SimpleNamespace(timing=SimpleNamespace(decode_seconds=1.0 if speculate else 1.5))

    async def state(self) -> State:
        guesses = self.outcome if isinstance(self.outcome, int) else 0
        return state(0.0036, Counters(first_guesses=guesses, first_hits=guesses // 2))


class Trials:
    """Trials with made-up outcomes by placement, in the order in which they ran."""

    def __init__(self, **outcomes: int | Exception) -> None:
        self.outcomes = outcomes
        self.ran: list[str] = []

    @contextlib.asynccontextmanager
    async def running(
        self, _: Workshop, __: SpeculativeService, arrangement: Arrangement
    ) -> AsyncIterator[Service]:
        self.ran.append(str(arrangement.placement))
        outcome = self.outcomes[self.ran[-1]]
        if isinstance(outcome, Failure):
            raise outcome
        yield Service(outcome)


@pytest.mark.parametrize("failed", [LOST, Failure("a worker ended"), 0])
def test_a_failed_trial_rules_its_placement_out_until_the_next_start(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    failed: int | Exception,
) -> None:
    trials = Trials(Colocated=failed, Separate=400)
    monkeypatch.setattr(Workshop, "running", lambda *given: trials.running(*given))
    made = chooser(tmp_path)
    Facts(costs=COSTS).write(made.file)
    choice = asyncio.run(made.choose())
    assert choice.best.arrangement.placement is Placement.SEPARATE
    assert choice.best.measured
    assert trials.ran == ["Colocated", "Separate"]
    assert "; the next start tries it again." in capsys.readouterr().err
    remembered = Facts.read(made.file)
    assert remembered.over_expected.keys() == {"Separate"}, "nothing of the trial that failed"
    assert remembered.first_guesses == 400


def test_where_every_trial_fails_decoding_is_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(Colocated=LOST, Separate=LOST)
    monkeypatch.setattr(Workshop, "running", lambda *given: trials.running(*given))
    for mode in ("Adaptive", "Static"):
        made = chooser(tmp_path, service(mode=mode))
        Facts(costs=COSTS).write(made.file)
        assert asyncio.run(made.choose()).best.arrangement == Arrangement(None, 2)
        assert Facts.read(made.file) == Facts(costs=COSTS)


def test_what_was_never_seen_is_called_an_assumption(tmp_path: Path) -> None:
    assert "60% of the draft's first guesses are assumed" in str(
        chooser(tmp_path).decide(Facts(costs=COSTS))
    )
    assert "assumed" not in str(chooser(tmp_path).decide(KNOWN))


def test_new_step_costs_outdate_what_trials_gave_over_the_old_ones(tmp_path: Path) -> None:
    made = chooser(tmp_path)
    KNOWN.with_trial(Placement.COLOCATED, 0.5).with_row(2, 0.0034).write(made.file)
    choice = made.measured(COSTS | {"draft": {"1": {"rows": {"1": 0.0005, "8": 0.0006}}}})
    assert choice.best.arrangement.placement is Placement.COLOCATED
    assert not choice.best.measured
    learnt = Facts.read(made.file)
    assert (learnt.over_expected, learnt.row_seconds) == ({}, {})
    assert learnt.first_guesses == KNOWN.first_guesses


def test_what_is_compared_is_plain_decoding_or_the_best_with_a_draft(tmp_path: Path) -> None:
    choice = chooser(tmp_path).decide(KNOWN)
    plain, drafted = Arrangement(None, 2), Arrangement(Placement.COLOCATED, 2)
    assert choice.counterpart(Arrangement(Placement.SEPARATE, 1)) == plain
    assert choice.counterpart(drafted) == plain
    assert choice.counterpart(plain) == drafted
    [(other, over_plain)] = choice.others(plain, drafted)
    assert other.arrangement == Arrangement(Placement.SEPARATE, 1, 1)
    assert over_plain == pytest.approx(choice.over_plain(other))
