"""What somebody waits for who writes code: `python -m bench.editor`.

Servers with one model are asked in turns, each alone, as an editor asks: to fill in the middle of
this repository's files (`/infill`), cold, and again four characters on, after a suggestion that
came whole and after one that was given up; and to edit code, without a prediction, with one that is
right for nine lines of ten, and with a useless one. Counted are seconds to the first token and to
the whole answer, as the client sees them. `--peer` adds llama.cpp's server (built the first time),
which has no predictions. The model is Qwen2.5-Coder 1.5B with its 0.5B, from
`python -m bench.sides.code_pair`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from bench.prompts.editor import Edit, Place, edits, places
from bench.record.report import RESULTS, say, write_run
from bench.sides import code_pair, llama_server
from bench.sides.http_server import served
from bench.sides.peer import DoesNotRun, uv
from bench.sides.services import turns
from outrider.cli.machine.ports import free_port
from outrider.contract import processors

PLAIN, PEER = "plain", "llama.cpp"
SOURCES = {
    PLAIN: "",
    "text": "Suffix",
    "text and answers": "Suffix, Answers",
    "draft and text": "Draft, Suffix",
    "draft, text and answers": "Draft, Suffix, Answers",
}
TYPED = 4
"""Characters of a suggestion that are typed before the next is asked for."""
FILL_TOKENS, EDIT_TOKENS = 64, 192
USELESS_EVERY = 10
"""Lines of a prediction of which one is wrong."""
COLD, AFTER_WHOLE, AFTER_CANCELLED = "cold", "on, after a whole one", "on, after a cancelled one"
NO_PREDICTION, RIGHT, USELESS = "no prediction", "right for nine tenths", "useless"
READY_SECONDS = 300.0
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: editor}}
spec:
  target:
    model: {{uri: "{target}"}}
    engine: {{maxContext: 4096, kvMemory: 1Gi}}
{draft}  speculation: {{{speculation}}}
"""
DRAFT = """  draft:
    placement: Colocated
    model: {{uri: "{draft}"}}
"""


@dataclass(frozen=True, slots=True)
class EditorAnswer:
    """One answer, as its client saw it."""

    text: str
    first: float
    """Seconds to the first token."""
    whole: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is asked."""

    client: httpx.AsyncClient

    async def fill(self, place: Place, tokens: int, give_up: float | None = None) -> EditorAnswer:
        """Return what is filled in; with `give_up`, leave once so many characters have come."""
        body = {"input_prefix": place.before, "input_suffix": place.after, "n_predict": tokens}
        body |= {"stream": True, "temperature": 0, "cache_prompt": True}
        text, tokens_seen, began, first = "", 0, time.perf_counter(), 0.0
        async with self.client.stream("POST", "/infill", json=body) as response:
            async for said in _events(response):
                first = first or time.perf_counter() - began
                text += said["content"]
                tokens_seen = said.get("tokens_predicted", tokens_seen)
                if give_up is not None and len(text) >= give_up:
                    break
        whole = time.perf_counter() - began
        return EditorAnswer(text, first or whole, whole, tokens_seen)

    async def edit(self, edit: Edit, tokens: int, prediction: str) -> EditorAnswer:
        """Return the answer to an edit, with a prediction if there is one."""
        body: dict[str, Any] = {"messages": [{"role": "user", "content": edit.prompt}]}
        body |= {"max_completion_tokens": tokens, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}}
        if prediction:
            body["prediction"] = {"type": "content", "content": prediction}
        text, count, began, first = "", 0, time.perf_counter(), 0.0
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for said in _events(response):
                for choice in said["choices"]:
                    if content := choice["delta"].get("content"):
                        first = first or time.perf_counter() - began
                        text += content
                count = (said.get("usage") or {}).get("completion_tokens", count)
        whole = time.perf_counter() - began
        return EditorAnswer(text, first or whole, whole, count)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects of an event stream; raises `SystemExit` for an answer that is an error."""
    if response.is_error:
        raise SystemExit(f"bench.editor: {(await response.aread()).decode(errors='replace')}")
    async for line in response.aiter_lines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            yield json.loads(data)


def main() -> int:
    """Measure, write JSON, print tables."""
    options = parse()
    load = os.getloadavg()
    try:
        results = asyncio.run(run(options))
    except DoesNotRun as error:
        raise SystemExit(f"bench.editor: {error}") from None
    write_run(options.out, "editor", results, ratios(results), load)
    for made in tables(results):
        Console().print(made)
    return 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=12)
    parser.add_argument("--edits", type=int, default=10)
    parser.add_argument("--threads", type=int, default=processors.count())
    parser.add_argument("--sides", nargs="*", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--peer", action="store_true", help="with llama.cpp, built by uv")
    parser.add_argument("--out", type=Path, default=RESULTS / "editor.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the sides and ask them; return the figures."""
    target, draft = code_pair.fetch(say)
    async with contextlib.AsyncExitStack() as stack:
        sides = {}
        for name in options.sides:
            say(f"starting: {name}")
            begun = serving(service_of(name, target, draft), options.threads)
            sides[name] = Server(await stack.enter_async_context(begun))
        if options.peer:
            server = llama_server.built(uv())
            theirs = llama_server.started(server, target, options.threads, "-c", "4096")
            sides[PEER] = Server((await stack.enter_async_context(theirs)).client)
        filled = await fill_all(sides, options.places)
        own = {name: one for name, one in sides.items() if name != PEER}
        edited = await edit_all(own, options.edits)
    return {"fill": figures(filled), "edit": figures(edited), "threads": options.threads}


def service_of(name: str, target: Path, draft: Path) -> str:
    """Return the YAML of a side."""
    sources = SOURCES[name]
    speculation = f"mode: Static, sources: [{sources}]" if sources else "mode: Disabled"
    own = DRAFT.format(draft=draft.as_uri()) if "Draft" in sources else ""
    return SERVICE.format(target=target.as_uri(), draft=own, speculation=speculation)


@contextlib.asynccontextmanager
async def serving(service: str, threads: int) -> AsyncIterator[httpx.AsyncClient]:
    """Run `outrider run` until it is ready, and end it afterwards."""
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(service)
        file.flush()
        command = [sys.executable, "-m", "outrider.cli", "run", "-f", file.name, "--no-page"]
        command += ["--threads", str(threads), "--port", str(port), "--grpc-port", "0"]
        async with served(command, port, "/readyz", READY_SECONDS, output=None) as client:
            yield client


Answers = dict[str, dict[str, list[EditorAnswer]]]
"""Answers by side and situation."""


async def fill_all(sides: Mapping[str, Server], count: int) -> Answers:
    """Ask every side to fill in two places of each file."""
    found: Answers = {name: {COLD: [], AFTER_WHOLE: [], AFTER_CANCELLED: []} for name in sides}
    chosen = places(2 * count)
    for number, (first, second) in enumerate(zip(chosen[:count], chosen[count:], strict=True)):
        say(f"fill in: {number + 1} of {count}")
        for name in turns(list(sides), number):
            side, own = sides[name], found[name]
            cold = await side.fill(first, FILL_TOKENS)
            own[COLD].append(cold)
            own[AFTER_WHOLE].append(await side.fill(typed_on(first, cold.text), FILL_TOKENS))
            half = await side.fill(second, FILL_TOKENS, give_up=len(cold.text) / 2)
            own[AFTER_CANCELLED].append(await side.fill(typed_on(second, half.text), FILL_TOKENS))
    return found


def typed_on(place: Place, suggestion: str) -> Place:
    """Return a place after the first characters of a suggestion were typed."""
    return Place(place.before + suggestion[:TYPED], place.after)


async def edit_all(sides: Mapping[str, Server], count: int) -> Answers:
    """Ask every side for the same edits, without and with predictions."""
    found: Answers = {name: {NO_PREDICTION: [], RIGHT: [], USELESS: []} for name in sides}
    chosen = edits(count)
    for number, edit in enumerate(chosen):
        say(f"edit: {number + 1} of {count}")
        useless = chosen[(number + 1) % count].code
        for name in turns(list(sides), number):
            side, own = sides[name], found[name]
            bare = await side.edit(edit, EDIT_TOKENS, "")
            predictions = {RIGHT: with_wrong_lines(bare.text), USELESS: useless}
            own[NO_PREDICTION].append(bare)
            for situation, prediction in predictions.items():
                has_use = name != PLAIN  # which makes nothing of it
                again = await side.edit(edit, EDIT_TOKENS, prediction) if has_use else bare
                own[situation].append(again)
    return found


def with_wrong_lines(text: str) -> str:
    """Return a text of which one line in some is another one."""
    lines = text.split("\n")
    lines[USELESS_EVERY // 2 :: USELESS_EVERY] = [
        "    raise NotImplementedError" for _ in lines[USELESS_EVERY // 2 :: USELESS_EVERY]
    ]
    return "\n".join(lines)


def figures(found: Answers) -> dict[str, Any]:
    """Return medians by situation and side, and seconds over plain's for the same requests."""
    made: dict[str, Any] = {}
    first = next(iter(found.values()))
    for situation in first:
        made[situation] = {
            name: {
                "first_seconds": statistics.median(one.first for one in by[situation]),
                "whole_seconds": statistics.median(one.whole for one in by[situation]),
                "tokens": sum(one.tokens for one in by[situation]),
                "rate": rate(by[situation]),
                "same_text": sum(map(same, by[situation], first[situation])) / len(by[situation]),
                "answers": [(one.first, one.whole, one.tokens) for one in by[situation]],
            }
            for name, by in found.items()
        }
    return made


def same(one: EditorAnswer, other: EditorAnswer) -> bool:
    """Return True if both texts are equal."""
    return one.text == other.text


def rate(answers: Sequence[EditorAnswer]) -> float:
    """Return tokens a second from the first token to the last, over all answers."""
    seconds = sum(one.whole - one.first for one in answers)
    return sum(max(0, one.tokens - 1) for one in answers) / seconds


def ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Return what may be quoted: rates over plain's, and seconds to the whole answer over it."""
    found = {}
    for group in ("fill", "edit"):
        for situation, sides in results[group].items():
            for name, one in sides.items():
                if PLAIN not in sides or name == PLAIN:
                    continue
                plain = sides[PLAIN]
                found[f"{group}, {situation}: {name}, rate over plain"] = (
                    one["rate"] / plain["rate"]
                )
                seconds = one["whole_seconds"] / plain["whole_seconds"]
                found[f"{group}, {situation}: {name}, whole answer over plain"] = seconds
    return found


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Return a table for each situation."""
    made = []
    for group in ("fill", "edit"):
        for situation, sides in results[group].items():
            one = Table("", "first, s", "whole, s", "tokens/s", title=f"{group}: {situation}")
            for name, values in sides.items():
                figures = (values[key] for key in ("first_seconds", "whole_seconds"))
                one.add_row(name, *(f"{value:.2f}" for value in figures), f"{values['rate']:.1f}")
            made.append(one)
    return made


if __name__ == "__main__":
    sys.exit(main())
