"""Load of a room: streams in all forms, three of ten given up, and what plain decoding answers."""

import asyncio
import random
import statistics
from pathlib import Path
from typing import Any

import httpx

from bench.prompts.forms import in_all_forms
from bench.record.report import prompts
from bench.soak import ImpatientLoad
from outrider.cli.load.endpoint import CONNECT_SECONDS
from outrider.cli.load.exchange import Exchange, Status
from outrider.cli.load.run import jobs
from tests.attack.rooms import CONTEXT, Models, plain_target

LENGTHS = (8, 90, 300, 700)
"""Bytes of the prompts, each of which is a token of the tiny models."""
USERS = 12
"""At once: more than run."""
SILENCE = 900.0
"""Seconds without a byte after which a request is lost: more than a worker takes to come back."""
AGAIN = 1.0
"""Seconds after which a user whose request failed asks the next."""
Bodies = list[dict[str, Any]]


class Streams(ImpatientLoad):
    """A load whose users rest after a failure: a target that was killed refuses at once."""

    cancel_share = 0.3

    async def send(self, exchange: Exchange) -> None:
        """Send one request, and perhaps leave its answer."""
        await super().send(exchange)
        if exchange.status is Status.FAILED:
            await asyncio.sleep(AGAIN)


def bodies(rng: random.Random) -> Bodies:
    """Return requests of every form, to prompts of all lengths; tiny models know no tools."""
    asked = []
    for length, prompt in zip(LENGTHS, rng.sample(prompts(), len(LENGTHS)), strict=True):
        text = (f"{prompt.text} " * length)[:length]
        asked += [
            body
            | {
                "max_tokens": rng.choice((32, 64, 128)),
                "priority": rng.choice((0, 0, -3, 5)),
                "stream_interval_ms": rng.choice((0, 0, 100)),
            }
            for body in in_all_forms(text)
            if "tools" not in body
        ]
    return asked


def client(base: str) -> httpx.AsyncClient:
    """Return a client that keeps no connection: those that rest may be closed."""
    return httpx.AsyncClient(
        base_url=f"{base}/v1",
        timeout=httpx.Timeout(SILENCE, connect=CONNECT_SECONDS),
        trust_env=False,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )


def streams(client: httpx.AsyncClient, asked: Bodies, seed: int, **options: Any) -> Streams:
    """Return a load of these requests, each with a seed of its own."""
    return Streams(client, jobs(asked, {"model": "tiny"}, seed), **options)


async def reference(models: Models, asked: Bodies, seed: int, folder: Path) -> list[Exchange]:
    """Return the answers of a target without a draft; raises `SystemExit` if one is missing."""
    folder.mkdir()
    plainly = [body | {"speculate": False} for body in asked]
    with plain_target(models, folder, max_context=CONTEXT, max_running=4) as target:
        async with client(target.url) as asking:
            load = streams(asking, plainly, seed, requests=len(asked))
            await load.closed_loop(4)
    wrong = [one for one in load.ended if one.status is not Status.COMPLETED]
    if wrong:
        raise SystemExit(f"tests.attack: no plain answer to {wrong[0].job[1]}: {wrong[0].problem}")
    return load.ended


async def all_once(base: str, asked: Bodies, seed: int, started: float) -> list[Exchange]:
    """Return a room's own answers while nothing attacks it; its pools fill meanwhile."""
    async with client(base) as asking:
        load = streams(asking, asked, seed, requests=len(asked), started=started)
        await load.closed_loop(USERS)
    return load.ended


def patience(answers: list[Exchange]) -> float:
    """Return the longest time after which a request is given up: twice the mean of an answer."""
    return 2 * statistics.fmean(one.ended - one.sent for one in answers)
