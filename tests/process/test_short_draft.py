"""A draft whose context is shorter than its target's: answers outgrow it and change in nothing."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider.client import State
from outrider.contract import metrics
from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import CONTEXT, Folders
from tests.process.test_faults import LEFT_OVER
from tests.process.test_metrics import grown, scrape
from tests.process.workers import PROMPT, Answer, Worker, answer, let_grow, pair_with

DRAFT_CONTEXT = 256
"""The target's is 2048, and a token of these tests is a byte."""
OUTGROWN = DRAFT_CONTEXT - len(PROMPT)
"""Tokens of an answer after which it has no draft."""
LONG = 600
SHORT = 150


@pytest.fixture(scope="module")
def short_draft(folders: Folders) -> Iterator[Worker]:
    settings = folders.settings(Role.DRAFT, max_context=DRAFT_CONTEXT)
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.fixture(scope="module")
def batching(folders: Folders, short_draft: Worker) -> Iterator[Worker]:
    """A target of two requests at once, with that draft."""
    settings = folders.settings(Role.TARGET, max_running=2)
    with workers.started(settings, folders.logs) as worker:
        pair_with(worker, short_draft.address)
        yield worker


def short_ones(target: Worker, enough: threading.Event) -> list[Answer]:
    """Short answers, one after the other, beside a long one."""
    beside = []
    while not enough.is_set():
        beside.append(answer(target, SHORT))
    return beside


def closed(target: Worker, since: int) -> list[str]:
    """Why its draft closed sessions, by what the log says from this byte on."""
    lines = target.log.read_text()[since:].splitlines()
    return [line.partition("closed by its draft: ")[2] for line in lines if "closed by" in line]


def idle(state: State) -> bool:
    return state.running == state.waiting == state.counters.kv_slots_used == 0


def test_an_answer_that_outgrows_its_draft_goes_on_alone_and_others_with_it(
    batching: Worker, short_draft: Worker, plain: tuple[int, ...]
) -> None:
    seen, told = scrape(batching), batching.log.stat().st_size
    enough = threading.Event()

    def grow() -> None:
        let_grow(batching, short_draft)

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(short_ones, batching, enough)
        try:
            given = answer(batching, LONG, {OUTGROWN // 2: grow})
        finally:
            enough.set()
        shorts = others.result()
    after = answer(batching, SHORT, {SHORT // 2: grow})
    assert given.tokens == plain[:LONG]
    assert given.accepted(end=OUTGROWN) > 0
    assert given.accepted(start=OUTGROWN + LEFT_OVER) == 0
    assert len(shorts) > 1
    assert {one.tokens for one in [*shorts, after]} == {plain[:SHORT]}
    assert sum(one.accepted() for one in shorts) > 0
    assert after.accepted() > 0
    state = batching.until(idle)
    assert workers.up_links(state) == [short_draft.address]
    assert closed(batching, told) == [f"TOO_LONG {DRAFT_CONTEXT} tokens fit"]
    assert grown(seen, scrape(batching), metrics.REQUEST_FAILURES) == 0
    assert state.counters.requests_failed == 0
    short_draft.until(idle)


def test_a_prompt_that_is_longer_than_the_draft_s_context_is_not_sent_to_it(
    batching: Worker, short_draft: Worker
) -> None:
    prompt = (PROMPT * DRAFT_CONTEXT)[:DRAFT_CONTEXT]
    told = batching.log.stat().st_size
    texts = [
        batching.client.complete(prompt, max_tokens=20, ignore_end=True, speculate=speculate)
        for speculate in (True, False)
    ]
    assert texts[0].token_ids == texts[1].token_ids
    assert texts[0].usage.draft_rows == 0
    grown = {SHORT // 2: lambda: let_grow(batching, short_draft)}
    assert answer(batching, SHORT, grown).accepted() > 0
    assert closed(batching, told) == []


def test_a_draft_says_how_much_context_it_came_to(short_draft: Worker, batching: Worker) -> None:
    engines = [worker.client.state().engine for worker in (short_draft, batching)]
    assert [engine and engine.max_context for engine in engines] == [DRAFT_CONTEXT, CONTEXT]
