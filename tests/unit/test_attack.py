"""What the standing attack takes for a fault, and what an outage of its own making explains."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from outrider.cli.load.exchange import Exchange, Status
from outrider.contract.counters import new_counters
from outrider.contract.settings import Role
from outrider.contract.state import State
from tests.attack import checks, load
from tests.attack.odd import drawn
from tests.attack.record import Kind, Problem, Record, Span
from tests.attack.rooms import Room, temporary
from tests.process.workers import wait_until

OUTAGE = Span(10.0, 20.0)


def exchange(sent: float, ended: float, status: Status, text: str = "") -> Exchange:
    """A stream of the only job."""
    one = Exchange((0, {}), sent, sent, ended, status)
    if text:
        one.texts[0] = text
    return one


@pytest.fixture
def seen() -> Record:
    record = Record("room")
    record.outages.append(OUTAGE)
    return record


@pytest.mark.parametrize(
    ("sent", "ended", "is_lost"),
    [(1, 9, True), (1, 10, False), (12, 13, False), (19, 30, False), (21, 30, True)],
)
def test_a_failed_stream_is_lost_unless_its_target_was_away_meanwhile(
    seen: Record, sent: float, ended: float, is_lost: bool
) -> None:
    seen.streams.append(exchange(sent, ended, Status.FAILED))
    checks.requests(seen)
    assert (len(seen.lost()), len(seen.cut())) == (is_lost, not is_lost)
    assert [one.kind for one in seen.problems] == [Kind.LOST] * is_lost


def test_streams_that_were_given_up_or_refused_are_not_lost(seen: Record) -> None:
    seen.streams += [exchange(1, 2, Status.INTERRUPTED), exchange(1, 2, Status.REJECTED)]
    checks.requests(seen)
    assert seen.problems == []


def test_an_odd_request_is_answered_wrongly_unless_the_target_was_away(seen: Record) -> None:
    wrong = Problem(Kind.ODD, "500")
    seen.suspects += [(Span(11, 12), wrong), (Span(21, 22), wrong)]
    checks.requests(seen)
    assert seen.problems == [wrong]


@pytest.mark.parametrize(
    ("status", "text", "differs"),
    [
        (Status.COMPLETED, "Once", False),
        (Status.COMPLETED, "Onc", True),
        (Status.INTERRUPTED, "On", False),
        (Status.INTERRUPTED, "Of", True),
        (Status.FAILED, "Of", True),
    ],
)
def test_answers_are_plain_decodings_and_broken_ones_their_beginnings(
    seen: Record, status: Status, text: str, differs: bool
) -> None:
    seen.streams.append(exchange(1, 2, status, text))
    counts = checks.texts(seen, [exchange(0, 1, Status.COMPLETED, "Once")])
    assert counts == {
        "whole": status is Status.COMPLETED,
        "prefixes": status is not Status.COMPLETED,
    }
    assert [one.kind for one in seen.problems] == [Kind.TEXT] * differs


def test_what_a_worker_still_holds_is_named() -> None:
    counters = new_counters()
    calm = State(role=Role.TARGET, model="tiny", counters=counters)
    assert checks.busy(calm) == []
    assert checks.busy(None) == ["says nothing"]
    counters.kv_slots_used = 16
    assert checks.busy(calm) == ["16 slots of KV"]


@pytest.mark.parametrize("words", ["Traceback (most recent call last):", "Task was destroyed but"])
def test_errors_in_logs_are_found(words: str) -> None:
    found = checks.FAULTS.search(f"12:00 fine\n{words} it is pending!\n")
    assert found is not None


def test_what_is_asked_and_drawn_follows_from_the_seed() -> None:
    assert load.bodies(random.Random(3)) == load.bodies(random.Random(3))
    numbers = st.integers(0, 2**31)
    assert drawn(numbers, 3, 9) == drawn(numbers, 3, 9) != drawn(numbers, 4, 9)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_process_is_missing_from_its_kill_on_until_another_is_there(tmp_path: Path) -> None:
    room = Room(tmp_path, "", {}, names={"orphaned engine"})
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "outrider.worker", "engine"],
        env={"TMPDIR": str(temporary(tmp_path))},
    )
    try:
        wait_until(lambda: bool(room.processes()), 60.0, "the process is seen")
        assert room.processes() == {"orphaned engine": process.pid}
        assert asyncio.run(room.missing(process.pid)) == f"the end of process {process.pid}"
    finally:
        process.kill()
        process.wait()
    assert asyncio.run(room.missing(process.pid)) == "processes ['orphaned engine']"
