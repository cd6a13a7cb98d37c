"""What is decided from what is known, without a worker."""

import dataclasses
from pathlib import Path

import pytest

from outrider.cli.failures import Failure
from outrider.cli.local.service import is_open, own_arrangement, plain_arrangement
from outrider.cli.machine import gpus
from outrider.cli.placement.choose import Choice, Chooser
from outrider.cli.placement.facts import Facts, PassSeconds
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.terminal.progress import Lines
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import State
from outrider.contract import processors
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
ALONE = TEXT.split("  draft:")[0] % ""
DRAFT = {2: 0.0004, 8: 0.0005}
ONE = PassSeconds({1: 0.0041, 4: 0.0046, 8: 0.0055}, DRAFT)
TWO = PassSeconds({1: 0.0034, 4: 0.0035, 8: 0.0039}, DRAFT)
BESIDE = PassSeconds({1: 0.0050, 4: 0.0057, 8: 0.0068}, DRAFT)
KNOWN = Facts(alone={1: ONE, 2: TWO}, beside=BESIDE, first_guesses=1000, first_hits=450)
SLOW_DRAFT = {2: 0.004, 8: 0.005}
DEAR = Facts(
    alone={n: dataclasses.replace(one, draft=SLOW_DRAFT) for n, one in KNOWN.alone.items()},
    beside=dataclasses.replace(BESIDE, draft=SLOW_DRAFT),
)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "count", lambda: 2)
    monkeypatch.setattr(processors, "usable", lambda: (0, 1))
    monkeypatch.setattr(gpus, "present", lambda: 0)


def service(target: str = "", draft: str = "", mode: str = "Adaptive") -> SpeculativeService:
    return load(TEXT % (target, draft, mode))


def start(folder: Path, **options: int) -> StartOptions:
    return StartOptions(PlanOptions(cache=str(folder), **options), Lines())


def chooser(folder: Path, given: SpeculativeService | None = None, **options: int) -> Chooser:
    return Chooser.of(given or service(), start(folder, **options))


def said(choice: Choice) -> list[str]:
    lines: list[str] = []
    choice.tell(lines.append)
    return lines


def test_the_fastest_is_taken_and_lines_of_a_narrow_terminal_say_why(tmp_path: Path) -> None:
    choice = chooser(tmp_path).decide(KNOWN)
    assert choice.best.arrangement == Arrangement(Placement.COLOCATED, 2)
    taken, why = said(choice)
    assert taken.startswith("placement Auto takes Colocated, 2 threads: ")
    assert why.startswith("over plain, 2 threads: Colocated 1.")
    assert ", Separate " in why
    assert why.endswith("; 45% accepted.")
    assert said(chooser(tmp_path).decide(DEAR))[1].endswith("; 60% assumed.")
    assert max(map(len, (taken, why))) <= 80 - len("hh:mm:ss ")


def test_a_draft_that_gains_nothing_is_not_taken_unless_the_service_keeps_it(
    tmp_path: Path,
) -> None:
    assert chooser(tmp_path).decide(DEAR).best.arrangement == Arrangement(None, 2)
    static = chooser(tmp_path, service(mode="Static")).decide(DEAR)
    assert static.best.arrangement.placement is not None


def test_threads_that_gain_nothing_are_left_to_others(tmp_path: Path) -> None:
    same = dataclasses.replace(KNOWN, alone={1: ONE, 2: ONE}, beside=None)
    assert chooser(tmp_path, load(ALONE)).decide(same).best.arrangement == Arrangement(None, 1)


def test_whole_arrangements_that_were_timed_decide(tmp_path: Path) -> None:
    made = chooser(tmp_path)
    KNOWN.write(made.file)
    rates = {"plain, 2 threads": 250.0, "Separate, 1 + 1 threads": 300.0}
    choice = made.timed(rates)
    assert choice.best.arrangement == Arrangement(Placement.SEPARATE, 1, 1)
    assert choice.over_plain(choice.best) == pytest.approx(1.2)
    assert len(choice.found) == 2, "one that did not run is not taken"
    assert made.known() == choice, "remembered"
    with pytest.raises(Failure, match="plain decoding"):
        made.timed({"Separate, 1 + 1 threads": 300.0})


@pytest.mark.parametrize(
    ("count", "threads", "separate"),
    [(1, {1}, None), (2, {1, 2}, (1, 1)), (4, {2, 3, 4}, (3, 1)), (16, {8, 15, 16}, (15, 1))],
)
def test_threads_of_two_processes_never_outnumber_the_processors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    threads: set[int],
    separate: tuple[int, int] | None,
) -> None:
    monkeypatch.setattr(processors, "count", lambda: count)
    made = chooser(tmp_path)
    assert {one.threads for one in made.arrangements} == threads
    two = separate and Arrangement(Placement.SEPARATE, *separate)
    assert made.separate == two


@pytest.mark.parametrize(
    ("target", "draft", "present", "placements"),
    [
        ("", "", 1, {None, Placement.COLOCATED}),
        ("", "", 2, {None, Placement.COLOCATED, Placement.SEPARATE}),
        (", replicas: 2", "", 2, {None, Placement.COLOCATED}),
        (", engine: {device: GPU}", ", engine: {device: CPU}", 1, {None, Placement.SEPARATE}),
        ("", ", engine: {maxRunning: 4}", 0, {None, Placement.SEPARATE}),
        (", replicas: 2", "", 0, {None, Placement.COLOCATED}),
        (
            "",
            ", resources: {requests: {memory: 1Gi}}",
            0,
            {None, Placement.COLOCATED, Placement.SEPARATE},
        ),
    ],
)
def test_placements_are_those_that_devices_and_service_allow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    draft: str,
    present: int,
    placements: set[Placement | None],
) -> None:
    monkeypatch.setattr(gpus, "present", lambda: present)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    found = chooser(tmp_path, service(target, draft)).arrangements
    assert {one.placement for one in found} == placements


def test_threads_that_the_service_or_an_option_names_are_kept(tmp_path: Path) -> None:
    named = service(", engine: {threads: 8}")
    assert {one.threads for one in chooser(tmp_path, named).arrangements} == {8}
    assert chooser(tmp_path, named).separate is None
    assert {one.threads for one in chooser(tmp_path, threads=1).arrangements} == {1}


@pytest.mark.parametrize(
    ("draft", "roles", "inside"),
    [
        ("", [Role.DRAFT, Role.TARGET], True),
        (", engine: {maxRunning: 4}", [Role.DRAFT, Role.TARGET], False),
    ],
)
def test_both_wait_to_be_measured_the_draft_inside_where_it_may_be(
    tmp_path: Path, draft: str, roles: list[Role], inside: bool
) -> None:
    workers = chooser(tmp_path, service(", replicas: 1", draft)).undecided.workers
    assert [one.role for one in workers] == roles
    assert all(one.settings.await_arrangement for one in workers)
    assert (workers[-1].settings.colocated is not None) is inside


def test_a_draft_without_room_for_its_process_waits_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "count", lambda: 1)
    [target] = chooser(tmp_path).undecided.workers
    assert target.settings.colocated is not None


def test_facts_of_drafts_with_other_engines_lie_in_other_files(tmp_path: Path) -> None:
    drafts = ("", ", engine: {device: CPU}", ", engine: {threads: 2}")
    files = [chooser(tmp_path, service("", draft)).file for draft in drafts]
    assert len(set(files)) == len(drafts)
    assert chooser(tmp_path).file == files[0]


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
        (", placement: SamePod", "Static", "SamePod, 3 + 1 threads"),
        (", placement: Colocated", "Static", "Colocated, 3 threads"),
        (", placement: Colocated", "Disabled", "plain, 3 threads"),
        (", replicas: 0", "Adaptive", "plain, 3 threads"),
    ],
)
def test_what_a_service_names_is_called_by_its_arrangement(
    tmp_path: Path, draft: str, mode: str, name: str
) -> None:
    named = service(", engine: {threads: 3}", draft, mode)
    assert own_arrangement(named, start(tmp_path)).name == name


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
    assert plain_arrangement(service(target), start(tmp_path)).name == name


def state(row: float, counters: Counters) -> State:
    return State(
        role=Role.TARGET, model="tiny", revision="", incarnation=0, ready=True, draining=False,
        policy=PolicySettings(), links=(), running=0, waiting=0, counters=counters, dtype="int8",
        threads=2, step_seconds={1: row},
    )  # fmt: skip


def test_a_run_teaches_the_pair_s_acceptance(tmp_path: Path) -> None:
    made = chooser(tmp_path)
    KNOWN.write(made.file)
    made.learn(state(0.0036, Counters(first_guesses=3000, first_hits=2700)))
    learnt = Facts.read(made.file)
    assert learnt.acceptance > 0.75
    assert learnt.alone == KNOWN.alone


@pytest.mark.parametrize("row", [0.0010, 0.0120])
def test_passes_that_cost_otherwise_than_was_measured_are_measured_anew(
    tmp_path: Path, row: float
) -> None:
    made = chooser(tmp_path)
    KNOWN.write(made.file)
    for usual in (0.0036, 0.0030, 0.0050):
        made.learn(state(usual, Counters()))
        assert made.known()
    made.learn(state(row, Counters()))
    assert made.known() is None
    assert Facts.read(made.file).first_guesses == KNOWN.first_guesses
