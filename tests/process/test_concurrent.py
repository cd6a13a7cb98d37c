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

CONTEXT = 512
KV_BYTES_PER_TOKEN = 2 * 4 * 50 * 64
"""Of the tests' target: keys and values in fp32, layers, one head."""
BLOCKS = 11
"""One sequence of the longest context needs 10 of them, four of those below need 16."""
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, seed=7, top_p=0.9),
    Sampling(temperature=0.0, frequency_penalty=0.3, logit_bias={97: 1.5}),
    Sampling(temperature=1.0, seed=2**53 - 1, repetition_penalty=1.1, presence_penalty=-0.2),
)
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


def asks() -> list[Ask]:
    """Twelve requests, of which two leave and two have hardly any time."""
    prompts = ("Once upon a time", "The sea " * 9, "x", "One two three " * 7)
    made = [
        Ask(prompts[index % 4] + str(index), 120 + 7 * index, SAMPLINGS[index // 2 % 4])
        for index in range(12)
    ]
    made[2] = dataclasses.replace(made[2], cancel_after=20)
    made[5] = dataclasses.replace(made[5], cancel_after=60)
    made[8] = dataclasses.replace(made[8], seconds=0.6)
    made[11] = dataclasses.replace(made[11], seconds=0.3)
    return made


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


def test_requests_at_once_have_the_texts_that_each_has_alone(
    narrow: Worker, two_drafts: tuple[MortalDraft, MortalDraft]
) -> None:
    alone = [solo(narrow, ask) for ask in asks()]
    pair_with(narrow, *(draft.address for draft in two_drafts))
    before = narrow.client.state().counters
    answers = asyncio.run(all_at_once(narrow))
    for ask, got, text in zip(asks(), answers, alone, strict=True):
        if ask.cancel_after is None and ask.seconds == ANSWER_SECONDS:
            assert got == Got(text, ended=True)
        else:
            assert text.startswith(got.text)
    state = narrow.until(lambda s: s.running == s.waiting == s.counters.kv_slots_used == 0)
    assert state.counters.preemptions > before.preemptions
    assert state.counters.accepted_rows > before.accepted_rows
    assert state.counters.requests_cancelled > before.requests_cancelled
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


async def all_at_once(target: Worker) -> list[Got]:
    """Every second one over HTTP."""
    async with (
        AsyncClient(target.address) as grpc,
        httpx.AsyncClient(base_url=target.url, trust_env=False, timeout=ANSWER_SECONDS) as http,
    ):
        running = [
            read(over_http(http, ask) if index % 2 else over_grpc(grpc, ask), ask.cancel_after)
            for index, ask in enumerate(asks())
        ]
        return await asyncio.gather(*running)


async def read(pieces: AsyncIterator[str | None], cancel_after: int | None) -> Got:
    """Pieces up to None, the end; or until its client leaves, or its time is over."""
    text = ""
    try:
        async for piece in pieces:
            if piece is None:
                return Got(text, ended=True)
            text += piece
            if cancel_after is not None and len(text) >= cancel_after:
                break
    except DeadlineExceeded:
        pass
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]
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
