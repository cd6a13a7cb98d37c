"""The demo's pair with and without its draft, by requests: `python -m bench.nightjar --real`.

One service for each side on this machine, both started at once and asked in turns, so that what
else the machine does falls on both alike. A turn keeps a number of requests running until so many
are answered. At each number every service first answers for some seconds that are not counted: a
switch that learns has learnt then. Draft tokens are the draft's alone, as in the simulation. About
three minutes.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.nightjar.loads import Side, goodput, static
from bench.record.pictures import put_title
from bench.record.report import Spread, headless_pyplot, median_and_range, prompts, write_run
from bench.sides.services import MODES, SERVICE, with_engine, with_speculation
from outrider.cli.local.trial import running
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.cli.terminal.progress import reporter
from outrider.cli.top import difference
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import AsyncClient, Counters, Message
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.spec.speculation import Proposer, Speculation

THREADS = 2
PLAIN = "off"
CLIENT_TURNS = 3
"""Requests of each client in a turn, where there are many clients."""
LEAST_ANSWERS = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one side."""

    seconds: float
    tokens: int
    latencies: tuple[float, ...]
    texts: tuple[tuple[int, ...], ...]
    """Texts by the number of the request."""
    counted: Counters
    """What the target counted meanwhile."""

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Figures:
    """What a side came to with a number of requests at once."""

    tokens_per_second: Spread
    over_plain: Spread
    """Ratios of speed to plain decoding, of turns of the same round."""
    mean_seconds: float
    p99_seconds: float
    off_share: float
    """Share of passes of requests without a draft token."""
    same_text: float
    """Share of answers that are those of plain decoding."""


@dataclass(slots=True)
class SideService:
    """A service of one side."""

    side: Side
    client: AsyncClient
    turns: dict[int, list[Turn]] = field(default_factory=dict)
    """Turns by requests at once."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `--real`."""
    real = parser.add_argument_group("--real")
    real.add_argument("--at-once", type=positive, nargs="+", default=[1, 2, 4, 8, 16])
    real.add_argument("--rounds", type=positive, default=3)
    real.add_argument("--max-tokens", type=positive, default=64)
    real.add_argument("--settle-seconds", type=float, default=4.0, help="before each number")


def positive(word: str) -> int:
    """Return a whole number of at least 1; raises `ValueError` for others."""
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


def main(options: argparse.Namespace, load_average: Sequence[float]) -> int:
    """Measure, write JSON and plot, print a table; returns 1 where a text differs."""
    measured = asyncio.run(measure(options, [static(0), goodput()]))
    found = {n: figures({s.side.name: s.turns[n] for s in measured}) for n in options.at_once}
    ratios = compared(found)
    write_run(
        options.out,
        "nightjar",
        {n: {name: asdict(one) for name, one in by.items()} for n, by in found.items()},
        ratios,
        load_average,
    )
    plot(found, options)
    put_title(options.out)
    for n, by in found.items():
        for name, one in by.items():
            low, middle, high = one.over_plain.low, one.over_plain.median, one.over_plain.high
            print(
                f"{n:3} at once, {name:9} {one.tokens_per_second.median:7.0f} tokens/s, "
                f"{middle:.3f} ({low:.3f} to {high:.3f}) of plain decoding's, "
                f"{one.mean_seconds:.2f} s, p99 {one.p99_seconds:.2f} s, "
                f"{one.off_share:4.0%} of passes without draft tokens, "
                f"{one.same_text:.0%} of texts the same"
            )
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return status(found)


def status(found: Mapping[int, Mapping[str, Figures]]) -> int:
    """Return 1 where a text is not that of plain decoding, else 0."""
    return int(any(one.same_text < 1 for by in found.values() for one in by.values()))


async def measure(options: argparse.Namespace, sides: Sequence[Side]) -> list[SideService]:
    """Start a service for each side, and ask them in turns."""
    service = with_engine(read_service(SERVICE), max_running=max(options.at_once))
    async with contextlib.AsyncExitStack() as stack:
        asked = []
        for side in sides:
            print(f"starting {side.name}", file=sys.stderr)
            start = StartOptions(PlanOptions(), reporter())
            beginning = running(of_side(service, side), arrangement(side), start)
            asked.append(SideService(side, await stack.enter_async_context(beginning)))
        for at_once in options.at_once:
            for one in asked:
                print(f"{at_once} at once, {one.side.name} settles", file=sys.stderr)
                await settle(one, at_once, options)
            for number in range(options.rounds):
                print(f"{at_once} at once, round {number + 1}", file=sys.stderr)
                first = number % len(asked)
                for one in (*asked[first:], *asked[:first]):
                    turn = await take_turn(one.client, at_once, number, options.max_tokens)
                    one.turns.setdefault(at_once, []).append(turn)
        return asked


async def settle(one: SideService, at_once: int, options: argparse.Namespace) -> None:
    """Let a side answer for some seconds."""
    began, number = time.monotonic(), 0
    while number == 0 or time.monotonic() - began < options.settle_seconds:
        await take_turn(one.client, at_once, number, options.max_tokens)
        number += 1


async def take_turn(client: AsyncClient, at_once: int, number: int, tokens: int) -> Turn:
    """Keep so many requests running until those of a turn are answered."""
    requests = max(LEAST_ANSWERS, CLIENT_TURNS * at_once)
    chosen = list(itertools.islice(itertools.cycle(prompts()), number, number + requests))
    latencies, texts = [0.0] * requests, [()] * requests
    left = iter(range(requests))

    async def keep_asking() -> None:
        for at in left:
            began = time.monotonic()
            result = await client.complete(
                [Message("user", chosen[at].text)],
                max_tokens=tokens,
                sampling=MODES["greedy"],
                ignore_end=True,
            )
            latencies[at] = time.monotonic() - began
            texts[at] = result.token_ids

    before = (await client.state()).counters
    began = time.monotonic()
    await asyncio.gather(*(keep_asking() for _ in range(at_once)))
    seconds = time.monotonic() - began
    counted = difference(before, (await client.state()).counters)
    written = sum(len(text) for text in texts)
    return Turn(seconds, written, tuple(latencies), tuple(texts), counted)


def of_side(service: SpeculativeService, side: Side) -> SpeculativeService:
    """Return the service as a side wants it, with draft tokens of the draft alone."""
    wanted = Speculation.model_validate(dict(side.speculation))
    return with_speculation(service, mode=wanted.mode, sources=(Proposer.DRAFT,))


def arrangement(side: Side) -> Arrangement:
    """Return where a side's draft runs: plain decoding has none."""
    return Arrangement(None if side.name == PLAIN else Placement.COLOCATED, THREADS)


def figures(turns: Mapping[str, Sequence[Turn]]) -> dict[str, Figures]:
    """Return what the sides' turns came to, with one number of requests at once."""
    return {name: _figures(own, turns[PLAIN]) for name, own in turns.items()}


def _figures(own: Sequence[Turn], plain: Sequence[Turn]) -> Figures:
    latencies = sorted(x for turn in own for x in turn.latencies)
    pairs = list(zip(own, plain, strict=True))
    passes = sum(turn.counted.passes for turn in own)
    same = [
        one == other
        for mine, theirs in pairs
        for one, other in zip(mine.texts, theirs.texts, strict=True)
    ]
    return Figures(
        tokens_per_second=median_and_range([turn.rate for turn in own]),
        over_plain=median_and_range([mine.rate / theirs.rate for mine, theirs in pairs]),
        mean_seconds=statistics.mean(latencies),
        p99_seconds=latencies[math.ceil(0.99 * len(latencies)) - 1],
        off_share=1 - sum(turn.counted.drafted_passes for turn in own) / passes,
        same_text=statistics.mean(same),
    )


def compared(found: Mapping[int, Mapping[str, Figures]]) -> dict[str, float]:
    """Return what may be quoted: sides over plain decoding."""
    return {
        f"{name}_vs_plain_{n}": one.over_plain.median
        for n, by in found.items()
        for name, one in by.items()
        if name != PLAIN
    }


def plot(found: Mapping[int, Mapping[str, Figures]], options: argparse.Namespace) -> None:
    """Draw tokens a second over plain decoding's by requests at once, with ranges."""
    pyplot = headless_pyplot()

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    numbers = list(found)
    for name in found[numbers[0]]:
        if name == PLAIN:
            continue
        spreads = [found[n][name].over_plain for n in numbers]
        middle = [s.median for s in spreads]
        errors = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        axis.errorbar(numbers, middle, errors, label=name, marker="o", capsize=3)
    axis.axhline(1, color="0.7", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_xticks(numbers, [str(n) for n in numbers])
    axis.set_xlabel("requests at once")
    axis.set_ylabel("tokens per second, over plain decoding's")
    axis.legend()
    figure.savefig(options.out.with_suffix(".png"), dpi=120)
    pyplot.close(figure)
