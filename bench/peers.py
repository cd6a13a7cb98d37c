"""Outrider beside the engines that one would otherwise take: `python -m bench.peers`.

One target, one draft, one machine, greedy answers to chats and to edits that repeat most of what
they are given. Each engine decodes plainly, with the draft, and with draft tokens out of the text
itself, as far as it can; each reads the same files, with as many threads, in the numeric type that
it takes by itself. Engines are asked in turns, each alone: an answer that is not counted, for one
that has rested is slow at first, then all that are. What is compared is the rate after the first
token, and an engine's own plain decoding with what it writes otherwise: whether the text is the
same. llama.cpp is built from source the first time, which takes five minutes; OpenVINO is installed
by uv. vLLM is not here: its wheel for CPUs pins a torch of its own.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from bench.prompts.sources import chats, edits
from bench.record.pictures import put_title
from bench.record.report import RESULTS, headless_pyplot, say, write_run
from bench.sides import llama_server, peer, peer_draft
from bench.sides.llama_server import LlamaServer
from bench.sides.peer import uv
from bench.sides.services import (
    MODES,
    SERVICE,
    WITHOUT_ANSWERS,
    Service,
    started,
    turns,
    with_speculation,
    without_draft,
)
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.contract import processors
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.spec.speculation import Proposer
from outrider.worker.checkpoints.source import ModelSource

SCRIPTS = Path(__file__).parent / "sides"
PLAIN, DRAFT, LOOKUP = WAYS = ("plain", "draft", "lookup")
OURS = "Outrider"
SOURCES = {PLAIN: (), DRAFT: WITHOUT_ANSWERS, LOOKUP: (Proposer.SUFFIX,)}
"""Sources of draft tokens by way: with a draft, all that the example of the demo uses."""
ACCELERATE = "accelerate==1.12.0"

END = 2
"""The id that ends an answer of the demo's model."""


class Answer(NamedTuple):
    """One answer."""

    tokens: int
    """After the first."""
    seconds: float
    ids: Sequence[int]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Answer":
        """Return what a peer said."""
        return cls(said["tokens"], said["seconds"], said["ids"])


class Side(Protocol):
    """One engine that decodes in one way."""

    async def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        """Return one greedy answer of at most so many tokens to a prompt's ids."""


@dataclass(frozen=True, slots=True)
class OwnService:
    """A service of this build."""

    service: Service

    async def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        """Return one answer."""
        result = await self.service.result(prompt, tokens, MODES["greedy"])
        after = result.usage.completion_tokens - 1
        return Answer(after, result.timing.decode_seconds, result.token_ids)


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """A way of a peer's process."""

    process: peer.Peer
    way: str

    async def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        """Return one answer."""
        asked = {"prompt": list(prompt), "way": self.way, "max_tokens": tokens}
        return Answer.of(await self.process.ask(**asked))


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A server of llama.cpp."""

    server: LlamaServer

    async def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        """Return one answer."""
        return Answer.of(await self.server.complete(prompt, tokens))


@dataclass(slots=True)
class Measured:
    """Answers of one side to one set of prompts."""

    tokens: int = 0
    seconds: float = 0.0
    answers: list[tuple[int, ...]] = field(default_factory=list)
    """The ids of each, without one that ends the text."""

    @property
    def rate(self) -> float:
        """Tokens a second over all answers."""
        return self.tokens / self.seconds

    def add(self, said: Answer) -> None:
        """Take an answer."""
        self.tokens += said.tokens
        self.seconds += said.seconds
        self.answers.append(tuple(said.ids[:-1] if said.ids[-1:] == [END] else said.ids))


def main() -> int:
    """Measure, write JSON and plot, print tables."""
    options = parse()
    load = os.getloadavg()
    results = asyncio.run(run(options))
    write_run(options.out, "peers", results, all_ratios(results["sets"]), load)
    plot(results, options.out.with_suffix(".png"))
    put_title(options.out)
    for name, found in results["sets"].items():
        Console().print(table(name, found))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=6, help="most of each set")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=processors.count())
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Ask every side every set; return the figures by set."""
    service = read_service(SERVICE)
    sets = {
        "chats": chats(options.prompts),
        "edits": edits()[: options.prompts],
    }
    async with contextlib.AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-peer-")))
        files = Files.of(service, scratch)
        ours = await our_sides(stack, service, options.threads)
        sides: dict[str, dict[str, Side]] = {OURS: dict(ours)}
        missing = {}
        for name in options.engines:
            say(f"starting {name}")
            try:
                sides[name] = await ENGINES[name](stack, files, options.threads)
            except peer.DoesNotRun as error:
                say(f"{name}: does not run: {error}")
                missing[name] = str(error)
        found = {}
        for name, chosen in sets.items():
            prompts = [await ours[PLAIN].service.ids(prompt) for prompt in chosen]
            found[name] = figures(await measure(name, sides, prompts, options))
    return {"sets": found, "threads": options.threads, "missing": missing}


@dataclass(frozen=True, slots=True)
class Files:
    """What peers read."""

    target: Path
    draft: Path
    """Alone in its folder, where peers may write beside it."""

    @classmethod
    def of(cls, service: SpeculativeService, scratch: Path) -> "Files":
        """Return the target's file, and the draft's once it is written."""
        draft = scratch / "draft.gguf"
        peer_draft.write(draft)
        return cls(ModelSource.parse(service.spec.target.model.uri).resolve(), draft)

    def options(self, threads: int) -> tuple[str | Path, ...]:
        """Return the options of peers that are scripts of this folder."""
        return ("--model", self.target, "--draft", self.draft, "--threads", str(threads))


async def our_sides(
    stack: contextlib.AsyncExitStack, service: SpeculativeService, threads: int
) -> dict[str, OwnService]:
    """Start a service for each way."""
    sides = {}
    for way, sources in SOURCES.items():
        wanted = service if way == DRAFT else without_draft(service)
        placement = Placement.COLOCATED if sources else None
        arranged = Arrangement(placement, threads)
        wanted = with_speculation(wanted, sources=sources or WITHOUT_ANSWERS)
        sides[way] = OwnService(await started(stack, wanted, f"{OURS} {way}", arranged))
    return sides


async def llama_cpp(
    stack: contextlib.AsyncExitStack, files: Files, threads: int
) -> dict[str, Side]:
    """Start a server for each way."""
    server = llama_server.built(uv())
    count, kind = str(threads), "--spec-type"
    more: dict[str, tuple[str | Path, ...]] = {
        PLAIN: (),
        DRAFT: (kind, "draft-simple", "-md", files.draft, "-td", count, "-tbd", count),
        LOOKUP: (kind, "ngram-simple"),
    }
    return {
        way: LlamaCpp(
            await stack.enter_async_context(
                llama_server.started(server, files.target, threads, *options)
            )
        )
        for way, options in more.items()
    }


async def transformers(
    stack: contextlib.AsyncExitStack, files: Files, threads: int
) -> dict[str, Side]:
    """Start a process of the project's own environment, which has it, and accelerate."""
    command = [uv(), "run", "--no-sync", "--with", ACCELERATE, *peer.PYTHON]
    command += [SCRIPTS / "transformers_peer.py", *files.options(threads)]
    return await script(stack, "transformers", command)


async def openvino(stack: contextlib.AsyncExitStack, files: Files, threads: int) -> dict[str, Side]:
    """Start a process of an environment of its own."""
    return await script(stack, "OpenVINO", peer.openvino("--lookup", *files.options(threads)))


async def script(
    stack: contextlib.AsyncExitStack, name: str, command: Sequence[str | Path]
) -> dict[str, Side]:
    """Start one process that answers in every way."""
    process = await stack.enter_async_context(peer.started(name, command))
    return {way: PeerProcess(process, way) for way in WAYS}


ENGINES = {"llama.cpp": llama_cpp, "transformers": transformers, "OpenVINO": openvino}
"""Engines by name, with what starts the ways of each."""


async def measure(
    name: str,
    sides: Mapping[str, Mapping[str, Side]],
    prompts: Sequence[Sequence[int]],
    options: argparse.Namespace,
) -> dict[str, dict[str, Measured]]:
    """Return what was measured of each engine and way; the first answer of a turn only warms up."""
    every = [(engine, way) for engine, ways in sides.items() for way in ways]
    measured = {engine: {way: Measured() for way in ways} for engine, ways in sides.items()}
    for repetition in range(options.repetitions):
        say(f"{name}: {repetition + 1} of {options.repetitions}")
        for engine, way in turns(every, repetition):
            side = sides[engine][way]
            await side.ask(prompts[0], options.max_tokens)
            for prompt in prompts:
                measured[engine][way].add(await side.ask(prompt, options.max_tokens))
    return measured


def figures(measured: Mapping[str, Mapping[str, Measured]]) -> dict[str, dict[str, Any]]:
    """Return by engine and way: tokens a second, over the engine's own plain decoding, over
    Outrider's, and the share of answers that are those of the engine's plain decoding."""
    ours = measured[OURS][PLAIN].rate
    return {
        engine: {
            way: {
                "tokens_per_second": one.rate,
                "over_own_plain": one.rate / ways[PLAIN].rate,
                "over_plain": one.rate / ours,
                "same": same(one, ways[PLAIN]),
            }
            for way, one in ways.items()
        }
        for engine, ways in measured.items()
    }


def same(one: Measured, other: Measured) -> float:
    """Return the share of answers that two sides have in common."""
    pairs = zip(one.answers, other.answers, strict=True)
    return sum(a == b for a, b in pairs) / len(one.answers)


def all_ratios(sets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Return what may be quoted: each engine and way over plain decoding here."""
    return {
        f"{engine.lower().replace('.', '_')}_{way}_over_plain_{name}": values["over_plain"]
        for name, found in sets.items()
        for engine, ways in found.items()
        for way, values in ways.items()
    }


def table(name: str, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Return the figures of one set, a row for each engine and way."""
    made = Table("engine", "way", "tokens/s", "over its plain", "same text", title=name)
    for engine, ways in found.items():
        for way, values in ways.items():
            made.add_row(
                engine,
                way,
                f"{values['tokens_per_second']:.0f}",
                f"{values['over_own_plain']:.2f}",
                f"{values['same']:.0%}",
            )
    return made


def markdown(results: Mapping[str, Any]) -> str:
    """Return all figures as a table in Markdown, a row for each engine."""
    sets: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]] = results["sets"]
    heads = ["", *(f"{name}: {way}" for name in sets for way in WAYS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for engine in next(iter(sets.values())):
        found = [sets[name][engine][way] for name in sets for way in WAYS]
        lines.append(f"| {' | '.join([engine, *map(cell, found)])} |")
    return "\n".join(lines)


def cell(values: Mapping[str, float]) -> str:
    """Return tokens a second, with a mark where texts are not those of plain decoding."""
    rate = f"{values['tokens_per_second']:.0f}"
    return rate if values["same"] == 1 else f"{rate} \\*"


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Bars of tokens a second of each engine and way, a picture for each set."""
    pyplot = headless_pyplot()

    sets = results["sets"]
    figure, axes = pyplot.subplots(1, len(sets), figsize=(11, 3.6), squeeze=False)
    for axis, (name, found) in zip(axes[0], sets.items(), strict=True):
        for place, ways in enumerate(found.values()):
            for at, values in enumerate(ways.values()):
                height = values["tokens_per_second"]
                axis.bar(place + 0.27 * (at - 1), height, width=0.25, color=f"C{at}")
        axis.set_xticks(range(len(found)), list(found))
        axis.set_title(f"SmolLM2-135M, {results['threads']} threads: {name}")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("tokens per second")
    axes[0][0].legend(list(WAYS), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
