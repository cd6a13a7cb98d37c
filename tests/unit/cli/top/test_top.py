"""`outrider top` counts right between looks, and draws what it knows."""

import dataclasses
from datetime import datetime

import pytest
from rich.console import Console

from outrider.cli.failures import BadInput
from outrider.cli.top.command import addresses
from outrider.cli.top.figures import between, difference, since_start, together
from outrider.cli.top.frame import as_json, frame, sparkline
from outrider.cli.top.history import History
from outrider.cli.top.poll import Look
from outrider.client import Counters, Link, LinkState, Memory, PolicySettings, State
from outrider.contract.planning import CHOICES, Choice
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


def state(counters: Counters = EARLY, role: Role = Role.TARGET, life: int = 1) -> State:
    link = Link(
        address=DRAFT, state=LinkState.CONNECTING, detail="no answer", revision="", incarnation=0
    )
    return State(
        role=role, model="tiny", revision="r", incarnation=life, ready=True, draining=False,
        policy=PolicySettings(), links=(link,) if role is Role.TARGET else (), running=3,
        waiting=2, counters=counters, dtype="fp32", threads=1, step_seconds={}, drafting="probe",
    )  # fmt: skip


def look(at: float, counters: Counters = EARLY, address: str = "a:1", life: int = 1) -> Look:
    return Look(address, at, state(counters, life=life))


def drawn(history: History, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(history, NOW))
    console.file.close()
    return console.export_text()


def test_figures_are_of_what_was_counted_between_two_looks() -> None:
    change = between(look(10.0), look(12.0, LATE))
    assert change is not None
    figures = change.figures()
    assert figures.tokens_per_second == 100
    assert figures.tokens_per_pass == 2
    assert figures.rows_per_pass == 10
    assert figures.accepted_share == 0.25
    assert figures.gain == 1.5
    assert figures.accepted_by_depth == (0.6, 0.4)
    assert figures.hit_rate is None


def test_a_worker_that_restarted_or_was_gone_has_no_rates() -> None:
    assert between(look(1.0, LATE), look(2.0, EARLY, life=2)) is None
    assert between(Look("a:1", 1.0, None, "gone"), look(2.0)) is None
    assert between(look(1.0), Look("a:1", 2.0, None, "gone")) is None
    assert between(None, look(2.0)) is None


def test_counters_of_several_are_added_before_anything_is_divided() -> None:
    slow = Counters(tokens=10, passes=10)
    fast = Counters(tokens=90, passes=30, passes_by_accepted=(0, 30))
    both = together(since_start(state(counters)) for counters in (slow, fast))
    assert both is not None
    assert both.figures().tokens_per_pass == 100 / 40
    assert both.counters.passes_by_accepted == (0, 30)
    assert together(()) is None


def test_a_difference_is_of_every_field() -> None:
    assert difference(Counters(), LATE) == LATE
    assert difference(LATE, LATE) == Counters(passes_by_accepted=(0, 0, 0))


@pytest.mark.parametrize("width", [80, 100])
def test_a_frame_shows_workers_and_what_does_not_work(width: int) -> None:
    history = History()
    history.add([look(1.0), Look(DRAFT, 1.0, None, "refused")])
    history.add([look(3.0, LATE), Look(DRAFT, 3.0, None, "refused")])
    text = drawn(history, width)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 of 1 targets, 0 of 1 drafts" in text
    row = next(line for line in lines if line.startswith("a:1 ready"))
    shown = [
        "a:1",
        "ready",
        "3",
        "2",
        "100",
        "2.00",
        "10.0",
        "1.50",
        "probe",
        "0/1",
        "█░░░░",
        "25%",
    ]
    assert row.split() == shown
    down = next(line for line in lines if line.startswith(f"{DRAFT} down"))
    assert down == f"{DRAFT} down 0/1"
    assert "a:1 has no link to 127.0.0.1:7002: connecting. no answer" in text
    assert "127.0.0.1:7002 does not answer: refused" in text
    assert "60% 40%" in text


def test_a_frame_says_why_steps_were_as_they_were() -> None:
    def planned(at: float, counts: dict[Choice, int]) -> Look:
        steps = tuple(counts.get(choice, 0) for choice in CHOICES)
        known = state(dataclasses.replace(EARLY, planner_steps=steps))
        choice = Choice.NO_ROW_PAYS.value
        known = dataclasses.replace(known, planner_choice=choice)
        return Look("a:1", at, known)

    history = History()
    history.add([planned(1.0, {Choice.ROWS_PAY: 100})])
    history.add([planned(2.0, {Choice.ROWS_PAY: 175, Choice.NO_NODES: 25})])
    line = "a:1: no row pays in its last step; 75% rows pay; 25% no nodes"
    assert line in drawn(history)


def test_a_frame_says_which_sources_proposed_what_was_accepted() -> None:
    history = History()
    history.add([look(1.0)])
    assert accepted_by_source(history) == ""
    history.add([look(2.0, dataclasses.replace(LATE, source_accepted=(60, 0, 40)))])
    assert accepted_by_source(history) == "draft 60%, answers 40%"


def accepted_by_source(history: History) -> str:
    """Return what a frame says of it."""
    label = "accepted by source"
    (line,) = [line for line in drawn(history).splitlines() if label in line]
    return line.partition(label)[2].strip()


def test_a_frame_says_who_has_how_much_of_shared_memory() -> None:
    memory = Memory(
        draft="on_host", target_kv_bytes=48 << 20, draft_kv_bytes=0, draft_weight_bytes=0,
        lendable_bytes=16 << 20, expansions=2, contractions=1, moved_blocks=3,
    )  # fmt: skip
    history = History()
    history.add([Look("a:1", 1.0, dataclasses.replace(state(), memory=memory))])
    shown = " ".join(drawn(history).split())
    assert "a:1 has 48 MiB of KV beside 0 MiB" in shown
    assert "lent 2 times" in shown


def test_a_worker_that_comes_back_is_counted_again() -> None:
    history = History()
    for at, seen in enumerate(
        [look(0.0), Look("a:1", 1.0, None, "gone"), look(2.0, life=2), look(3.0, LATE, life=2)]
    ):
        history.add([seen])
        assert len(history.rates) == at
    assert list(history.rates) == [0.0, 0.0, 200.0]


def test_the_json_has_the_same_figures() -> None:
    history = History()
    history.add([look(1.0)])
    history.add([look(3.0, LATE)])
    shown = as_json(history, NOW)
    assert (
        shown["now"]["tokens_per_second"] == shown["workers"][0]["now"]["tokens_per_second"] == 100
    )
    assert shown["since_start"]["gain"] == 5 / 3
    assert shown["workers"][0]["state"]["running"] == 3


def test_the_highest_rate_is_the_highest_bar() -> None:
    assert sparkline([0, 50, 100]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "h:0", "h:65536", "h:1,", "h:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--address: .* it is host:port"):
        addresses(text)


def test_several_addresses_have_commas_between() -> None:
    assert addresses("a:1, [::1]:2") == ("a:1", "[::1]:2")
