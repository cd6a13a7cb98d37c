"""Many requests at once, over both APIs, with too little KV for all: each has its solo text."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest

from outrider.client import AsyncClient, DeadlineExceeded, Sampling
from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import ANSWER_SECONDS, Worker, pair_with

CONTEXT = 320
KV_BYTES_PER_TOKEN = 2 * 4 * 50 * 64
"""Bytes of a token's KV in the tests' target: keys and values in fp32, layers, one head."""
BLOCKS = 7
"""One sequence of the longest context needs 7 of them, four of those below up to 16."""
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, seed=7, top_p=0.9),
    Sampling(temperature=0.0, frequency_penalty=0.3, logit_bias={97: 1.5}),
    Sampling(temperature=1.0, seed=2**53 - 1, repetition_penalty=1.1, presence_penalty=-0.2),
)
MOST = 16
"""Requests at once."""
GAP = 10
"""Pieces of all answers together between two arrivals: an answer has about six times as many."""
EVENT = "data: "


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and how it ends."""

    prompt: str
    count: int
    sampling: Sampling
    cancel_after: int | None = None
    """Characters after which its client leaves."""
    seconds: float = ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class Got:
    """What came of it."""

    text: str
    ended: bool
    """Whether the answer came to its end."""


def asks(count: int) -> list[Ask]:
    """The first so many of sixteen requests: two leave early, and two have hardly any time."""
    prompts = ("Once upon a time", "The sea " * 9, "x", "One two three " * 7)
    made = [
        Ask(prompts[index % 4] + str(index), 90 + 67 * index % 130, SAMPLINGS[index // 2 % 4])
        for index in range(MOST)
    ]
    made[2] = dataclasses.replace(made[2], cancel_after=20)
    made[5] = dataclasses.replace(made[5], cancel_after=60)
    made[8] = dataclasses.replace(made[8], seconds=0.6)
    made[11] = dataclasses.replace(made[11], seconds=0.3)
    return made[:count]


class Arrivals:
    """Lets each request come a while after the one before it, by what has been answered so far."""

    def __init__(self, gap: int) -> None:
        """`gap`: pieces of all answers together between two arrivals."""
        self._gap = gap
        self._pieces = self._ended = 0
        self._news = asyncio.Condition()

    async def turn(self, number: int) -> None:
        """Returns when it is this request's turn; numbers count from 0."""
        async with self._news:
            await self._news.wait_for(
                lambda: self._pieces >= number * self._gap or self._ended == number
            )

    async def saw(self, *, end: bool = False) -> None:
        """A piece of some answer has come, or there will be no more of it."""
        async with self._news:
            self._pieces += not end
            self._ended += end
            self._news.notify_all()


@pytest.fixture(scope="module")
def narrow(folders: Folders) -> Iterator[Worker]:
    """A target that runs four requests and has no KV for all of them."""
    settings = folders.settings(
        Role.TARGET,
        max_context=CONTEXT,
        max_running=4,
        kv_bytes=BLOCKS * 64 * KV_BYTES_PER_TOKEN,
    )
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.fixture(scope="module")
def alone(narrow: Worker) -> list[str]:
    """The text of each request from plain decoding, with nobody beside it."""
    return [solo(narrow, ask) for ask in asks(MOST)]


@pytest.mark.parametrize(("count", "gap"), [(8, GAP), (MOST, 0), (MOST, GAP)])
def test_requests_at_once_have_the_texts_that_each_has_alone(
    narrow: Worker,
    alone: list[str],
    two_drafts: tuple[MortalDraft, MortalDraft],
    count: int,
    gap: int,
) -> None:
    pair_with(narrow, *(draft.address for draft in two_drafts))
    before = narrow.client.state().counters
    answers, most_waiting = asyncio.run(all_of(asks(count), narrow, Arrivals(gap)))
    for ask, got, text in zip(asks(count), answers, alone, strict=False):
        if ask.cancel_after is None and ask.seconds == ANSWER_SECONDS:
            assert got == Got(text, ended=True)
        else:
            assert text.startswith(got.text)
    state = narrow.until(lambda s: s.running == s.waiting == s.counters.kv_slots_used == 0)
    assert most_waiting > 0
    assert state.counters.preemptions > before.preemptions or count < MOST
    assert state.counters.accepted_rows > before.accepted_rows
    assert state.counters.requests_cancelled > before.requests_cancelled
    assert state.counters.requests_failed == 0
    for draft in two_drafts:
        draft.worker.until(lambda s: s.running == 0)


def solo(target: Worker, ask: Ask) -> str:
    """Its text from plain decoding, with nobody beside it."""
    return target.client.complete(
        ask.prompt,
        max_tokens=ask.count,
        sampling=ask.sampling,
        ignore_end=True,
        speculate=False,
        timeout=ANSWER_SECONDS,
    ).text


async def all_of(some: list[Ask], target: Worker, arrivals: Arrivals) -> tuple[list[Got], int]:
    """What came of each, every second one over HTTP; and how many waited at most."""
    async with (
        AsyncClient(target.address) as grpc,
        httpx.AsyncClient(base_url=target.url, trust_env=False, timeout=ANSWER_SECONDS) as http,
    ):
        running = asyncio.gather(
            *(
                read(
                    number,
                    over_http(http, ask) if number % 2 else over_grpc(grpc, ask),
                    ask.cancel_after,
                    arrivals,
                )
                for number, ask in enumerate(some)
            )
        )
        most_waiting = 0
        while not running.done():
            most_waiting = max(most_waiting, (await grpc.state()).waiting)
            await asyncio.sleep(0.01)
        return await running, most_waiting


async def read(
    number: int, pieces: AsyncIterator[str | None], cancel_after: int | None, arrivals: Arrivals
) -> Got:
    """From its turn on, pieces up to None; or until its client leaves, or its time is over."""
    text = ""
    await arrivals.turn(number)
    try:
        async for piece in pieces:
            if piece is None:
                return Got(text, ended=True)
            text += piece
            await arrivals.saw()
            if cancel_after is not None and len(text) >= cancel_after:
                break
    except DeadlineExceeded:
        pass
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]
        await arrivals.saw(end=True)
    return Got(text, ended=False)


async def over_grpc(client: AsyncClient, ask: Ask) -> AsyncIterator[str | None]:
    """Pieces of text, then None."""
    async with client.generate(
        ask.prompt,
        max_tokens=ask.count,
        sampling=ask.sampling,
        ignore_end=True,
        timeout=ask.seconds,
    ) as stream:
        async for chunk in stream:
            yield chunk.text
    yield None


async def over_http(client: httpx.AsyncClient, ask: Ask) -> AsyncIterator[str | None]:
    """The same; an error within the stream ends it."""
    given = {k: v for k, v in dataclasses.asdict(ask.sampling).items() if v is not None}
    body = {
        "prompt": ask.prompt,
        "max_tokens": ask.count,
        "ignore_eos": True,
        "stream": True,
        **given,
    }
    headers = {"X-Request-Timeout": str(ask.seconds)}
    async with client.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith(EVENT):
                continue
            if line == EVENT + "[DONE]":
                yield None
                return
            event = json.loads(line.removeprefix(EVENT))
            if "error" in event:
                assert event["error"]["code"] == "deadline_exceeded"
                return
            yield event["choices"][0]["text"]
