"""`outrider bench serve`: its options; the load is `outrider.cli.load`'s, imported when wanted."""

import os
import shlex
import sys
from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.cli.commands.options import Json, KeyVariable, TlsRoots, flag, number, option
from outrider.cli.failures import BadInput, Failure
from outrider.contract import process

REQUESTS, LAST_SEED, MOST = 100, 2**31 - 1, 10**6
PROMPTS = """Own prompts: JSON lines of {"prompt": …} or {"messages": […]}; max_tokens may stand \
beside. [default: bundled ones]"""
BODY = """Further fields of each request, as {"temperature": 0.8, "ignore_eos": true}. [default: \
{"temperature": 0}]"""

bench = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@bench.callback()
def benches() -> None:
    """Measure a running service."""


@bench.command()
def serve(
    url: Annotated[
        str, option(metavar="URL", help="Base of an OpenAI-compatible API; usually ends in /v1.")
    ] = f"http://127.0.0.1:{process.HTTP_PORT}/v1",
    model: Annotated[
        str | None, option(metavar="NAME", help="Model to ask. [default: the only one served]")
    ] = None,
    api_key_env: KeyVariable = None,
    tls_ca: TlsRoots = None,
    rate: Annotated[
        float | None, number("R", 0, MOST, "Requests a second, as Poisson arrivals.", above=True)
    ] = None,
    concurrency: Annotated[
        int | None, number("N", 1, MOST, "Instead of --rate: keep N requests running.")
    ] = None,
    requests: Annotated[
        int | None, number("N", 1, MOST, "Send so many. [default: 100, without --seconds]")
    ] = None,
    seconds: Annotated[
        float | None, number("S", 0, MOST, "Send for so long, then read the rest.", above=True)
    ] = None,
    prompts: Annotated[Path | None, option(metavar="FILE", help=PROMPTS)] = None,
    max_tokens: Annotated[int, number("N", 1, MOST, "Most tokens of an answer.")] = 256,
    body: Annotated[str | None, option(metavar="JSON", help=BODY)] = None,
    seed: Annotated[int, number("N", 0, LAST_SEED, "Of arrivals, prompts and sampling.")] = 0,
    check_text: Annotated[
        bool, flag("--check-text", help="Status 1 if two answers to one prompt differ.")
    ] = False,
    json: Json = False,
) -> None:
    """Load any OpenAI-compatible endpoint with streamed chats, and report throughput and latencies.

    Ctrl-C ends a run early and still reports what was measured.

    Examples:

    ```
    outrider bench serve --concurrency 8 --requests 200
    outrider bench serve --url http://10.0.0.7:8000/v1 --rate 2
    outrider bench serve --model my-model --api-key-env KEY --rate 2
    outrider bench serve --rate 4 --prompts chats.jsonl --check-text
    ```
    """
    import asyncio

    from outrider.cli.load.endpoint import endpoint
    from outrider.cli.load.prompts import bundled, read
    from outrider.cli.load.run import LoadRun, jobs
    from outrider.cli.load.summary import compare, report, summary
    from outrider.cli.machine.info import heading
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import print_json

    if (rate is None) == (concurrency is None):
        raise BadInput("give --rate R for requests a second, or --concurrency N for N at a time")
    place = endpoint(url, api_key_env, tls_ca)
    chosen = [one.fields() for one in bundled()] if prompts is None else read(prompts)
    asked = {"max_tokens": max_tokens, "temperature": 0.0} | fields(body)
    load_average, command = os.getloadavg(), shlex.join(["outrider", *sys.argv[1:]])

    async def run() -> None:
        async with place.client() as client:
            asked["model"] = await place.model(client, model)
            most = REQUESTS if requests is None and seconds is None else requests
            load = LoadRun(client, jobs(chosen, asked, seed), most, seconds)
            showing = asyncio.create_task(load.progress())
            try:
                await (load.open_loop(rate, seed) if rate else load.closed_loop(concurrency or 1))
            finally:
                showing.cancel()
                finish(load)

    def finish(load: LoadRun) -> None:
        settings = {"url": url, "rate": rate, "concurrency": concurrency, "seed": seed, **asked}
        found = {"settings": settings, **summary(load.ended)}
        if check_text:
            found["texts"] = compare(load.ended)
        if json:
            print_json(heading(command, load_average) | found)
        else:
            report(found)
        if check_text and (wrong := len(found["texts"]["differences"])):
            raise Failure(f"--check-text: {wrong} answers differ")
        if check_text and found["completed"] and not found["texts"]["compared"]:
            raise Failure(f"--check-text: no prompt of {len(chosen)} was answered twice")
        if not found["completed"] and (found["failed"] or found["rejected"]):
            why = next(iter(found["problems"]), f"{found['rejected']} were rejected (HTTP 429)")
            raise Failure(f"no request completed: {why}")

    interrupts.run(run())


def fields(body: str | None) -> dict[str, Any]:
    """Return the fields of --body; raises `BadInput`."""
    try:
        given = loads(body or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise BadInput(f"--body {body}: allowed: a JSON object")
    return given
