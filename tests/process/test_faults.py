"""Processes that die, hang or are told to stop in the middle of an answer."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from outrider.client import Cancelled, DeadlineExceeded, Sampling, Unavailable
from outrider.contract.process import EXIT_ADDRESS_IN_USE
from outrider.contract.settings import Role
from outrider.worker.link.wire import CloseReason
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.hostile import HostileTarget
from tests.process.test_hostile import opening
from tests.process.workers import (
    Worker,
    alive,
    answer,
    assert_speculated,
    held,
    let_grow,
    pair_with,
    wait_until,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds engines in /proc")

LEFT_OVER = 64
"""Tokens after a draft's death that its last guesses may still have helped with."""
AT_ONCE = 10.0
"""Seconds: sooner than anything that only waits would be over, such as gRPC's keepalive."""
BEFORE = 30
"""Tokens before an event, at which the draft is given the time to help with them."""


@pytest.fixture
def own_target(folders: Folders) -> Iterator[Worker]:
    """A target that the test may end, and that has the time to finish its answers."""
    settings = folders.settings(Role.TARGET, grace_seconds=int(workers.ANSWER_SECONDS))
    with workers.started(settings, folders.logs) as worker:
        yield worker


def test_a_killed_draft_is_used_again_after_it_returns(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, draft.address)
    kill_at = random.Random(1).randrange(100, 300)
    alone_until = kill_at + 4 * LEFT_OVER

    def hold_until_it_returns() -> None:
        """However long a start takes here, there is answer left to write."""
        with held(target):
            draft.until_ready()

    def grow() -> None:
        draft.worker.until(lambda state: state.running == 1)
        let_grow(target, draft.worker)

    events = {kill_at: draft.kill, alone_until: hold_until_it_returns}
    given = answer(
        target, len(plain), {kill_at - BEFORE: grow, **events, alone_until + 2 * LEFT_OVER: grow}
    )
    assert given.tokens == plain
    assert given.accepted(end=kill_at) > 0
    assert given.accepted(start=alone_until + LEFT_OVER) > 0
    assert_speculated(given)


@pytest.mark.parametrize("seed", range(4))
def test_two_drafts_killed_in_turn_cost_no_token(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft], plain: tuple[int, ...], seed: int
) -> None:
    pair_with(target, *(draft.address for draft in two_drafts))
    dice = random.Random(seed)
    first = dice.randrange(150, 300)
    second = first + dice.randrange(200, 300)
    left = list(two_drafts)

    def grow() -> None:
        for draft in left:
            let_grow(target, draft.worker)

    def kill_the_one_in_use() -> None:
        left.sort(key=lambda draft: draft.worker.client.state().running)
        left.pop().kill()

    def kill_the_other() -> None:
        left.pop().kill()

    events = {first: kill_the_one_in_use, second: kill_the_other}
    given = answer(target, 700, {first - BEFORE: grow, second - BEFORE: grow, **events})
    assert given.tokens == plain[:700]
    assert given.accepted(end=first) > 0
    assert given.accepted(start=first + LEFT_OVER, end=second) > 0
    assert_speculated(given)


def test_a_hung_draft_delays_nothing_for_long(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, draft.address)
    seen: list[tuple[float, float]] = []

    def note() -> None:
        seen.append((time.monotonic(), target.client.state().counters.draft_wait_seconds))

    def grow() -> None:
        draft.worker.until(lambda state: state.running == 1)
        let_grow(target, draft.worker)

    def hang() -> None:
        draft.worker.signal_all(signal.SIGSTOP)
        note()

    def go_on() -> None:
        note()
        draft.worker.signal_all(signal.SIGCONT)

    given = answer(target, 900, {150 - BEFORE: grow, 150: hang, 450: go_on, 600: grow})
    assert given.tokens == plain[:900]
    assert given.accepted(end=150) > 0
    assert given.accepted(start=450 + LEFT_OVER) > 0
    passed, waited = (after - before for before, after in zip(*seen, strict=True))
    assert waited < passed / 2, "it was computing, most of the time"
    assert_speculated(given)


def test_a_killed_target_is_unavailable_at_once_and_its_engine_ends(own_target: Worker) -> None:
    (engine,) = own_target.children()
    killed: list[float] = []

    def kill() -> None:
        own_target.kill()
        killed.append(time.monotonic())

    with pytest.raises(Unavailable):
        answer(own_target, 1500, {20: kill})
    assert time.monotonic() - killed[0] < AT_ONCE
    wait_until(lambda: not alive(engine), workers.END_SECONDS, "the engine ends with its server")


def test_a_killed_engine_ends_its_streams_and_its_server(own_target: Worker) -> None:
    (engine,) = own_target.children()
    with pytest.raises(Unavailable, match="engine"):
        answer(own_target, 1500, {20: lambda: os.kill(engine, signal.SIGKILL)})
    assert own_target.process.wait(workers.END_SECONDS) == 1


def test_a_cancelled_answer_frees_its_memory_at_once(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, draft.address)
    with target.client.generate(workers.PROMPT, max_tokens=1500, ignore_end=True) as stream:
        for _ in range(20):
            next(stream)
        stream.close()
        with pytest.raises(Cancelled):
            list(stream)
    assert_idle(target)
    draft.worker.until(lambda state: state.counters.kv_slots_used == 0, AT_ONCE)
    assert answer(target, 100).tokens == plain[:100]


def test_a_deadline_frees_the_memory_of_an_answer(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, draft.address)
    with pytest.raises(DeadlineExceeded):
        answer(target, 1800, timeout=0.5)
    assert_idle(target)
    assert answer(target, 100).tokens == plain[:100]


def test_a_request_may_be_given_up_while_it_waits(target: Worker, plain: tuple[int, ...]) -> None:
    pair_with(target)

    def give_up_another() -> None:
        with target.client.generate(workers.PROMPT, max_tokens=9):
            target.until(lambda state: state.waiting == 1, AT_ONCE)
        target.until(lambda state: state.waiting == 0, AT_ONCE)
        with pytest.raises(DeadlineExceeded):
            target.client.complete(workers.PROMPT, max_tokens=9, timeout=0.3)
        target.until(lambda state: state.waiting == 0, AT_ONCE)

    assert answer(target, 600, {20: give_up_another}).tokens == plain[:600]
    assert_idle(target)


def test_sigterm_lets_answers_finish_and_takes_no_more(own_target: Worker) -> None:
    (engine,) = own_target.children()
    refused: list[str] = []

    def terminate() -> None:
        own_target.process.send_signal(signal.SIGTERM)
        own_target.until(lambda state: state.draining, AT_ONCE)
        with pytest.raises(Unavailable) as refusal:
            own_target.client.complete(workers.PROMPT, max_tokens=1)
        refused.append(str(refusal.value))

    given = answer(own_target, 400, {20: terminate}, sampling=Sampling(temperature=1, seed=3))
    assert len(given.tokens) == 400
    assert "draining" in refused[0]
    assert own_target.process.wait(workers.END_SECONDS) == 0
    assert not alive(engine)


@pytest.fixture
def own_draft(folders: Folders) -> Iterator[Worker]:
    """A draft that the test may end."""
    with workers.started(folders.settings(Role.DRAFT), folders.logs) as worker:
        yield worker


def test_a_draft_that_is_told_to_stop_hands_its_sessions_to_another(
    target: Worker, own_draft: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, own_draft.address)  # up first, and so used first
    pair_with(target, own_draft.address, draft.address)
    told_before = target.log.stat().st_size

    def terminate() -> None:
        assert own_draft.until(lambda state: state.running == 1, AT_ONCE).counters.passes > 0
        own_draft.process.send_signal(signal.SIGTERM)

    def grow() -> None:
        let_grow(target, own_draft)

    def grow_the_other() -> None:
        draft.worker.until(lambda state: state.running == 1)
        let_grow(target, draft.worker)

    given = answer(
        target, 700, {200 - BEFORE: grow, 200: terminate, 210 + LEFT_OVER: grow_the_other}
    )
    assert given.tokens == plain[:700]
    assert given.accepted(end=200) > 0
    assert given.accepted(start=200 + LEFT_OVER) > 0
    assert_speculated(given)
    assert own_draft.process.wait(workers.END_SECONDS) == 0
    told = target.log.read_text()[told_before:]
    assert told.count("closed by its draft: DRAINING") == 1


@pytest.mark.parametrize("how", ["SIGTERM", "Control.Drain"])
def test_a_draft_that_is_told_to_stop_says_so_to_its_targets(own_draft: Worker, how: str) -> None:
    with HostileTarget(own_draft.address) as peer:
        peer.send(opening())
        own_draft.until(lambda state: state.running == 1, AT_ONCE)
        if how == "SIGTERM":
            own_draft.process.send_signal(signal.SIGTERM)
        else:
            own_draft.client.drain(30.0)
        assert peer.close_reason(1).reason == CloseReason.DRAINING
        assert own_draft.process.wait(workers.END_SECONDS) == 0


def test_a_second_worker_on_a_port_says_that_it_is_taken(target: Worker, folders: Folders) -> None:
    port = int(target.address.rpartition(":")[2])
    second = workers.launch(folders.settings(Role.TARGET, port), folders.logs)
    try:
        assert second.process.wait(60.0) == EXIT_ADDRESS_IN_USE
    except subprocess.TimeoutExpired:
        workers.stop(second)
        raise
    second.client.close()
    assert target.client.state().ready


def assert_idle(target: Worker) -> None:
    """Nothing runs, and no slot of KV is held."""
    target.until(lambda s: s.running == s.waiting == s.counters.kv_slots_used == 0, AT_ONCE)
