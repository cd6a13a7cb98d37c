"""SwiftSpec's claim, taken apart: `python -m bench.swiftspec`.

Target and draft in turns in one process; side by side in two without re-use of the draft's KV, with
the paper's exchange in lock step (arXiv 2506.11309, Algorithm 1), and with the mirrored tree: the
same models, planner, noise and messages, so that each side differs in one thing. Real processes on
this machine. First each at its best link; then those in two processes over gRPC with time added
each way. All texts must be the same. Sides without re-use and in lock step exist here alone.
"""

import argparse
import asyncio
import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.proportion.inert_layers import MAX_CONTEXT, NODES_AHEAD, deeper
from bench.record.pictures import put_title
from bench.record.report import RESULTS, Prompt, prompts, write_run
from bench.sides.services import SERVICE, with_engine, with_speculation
from bench.swiftspec.answer import COLOCATED, PARALLEL, PLAIN, Answer
from bench.swiftspec.figures import Figures, Verdict, by_side, differing, ratios, verdicts
from bench.swiftspec.plots import plot_delays
from bench.swiftspec.sides import Side, all_started, delayed, link_near
from outrider.cli.service.file import read_service
from outrider.operator.spec import SpeculationMode, SpeculativeService
from outrider.operator.spec.speculation import Proposer

EXAMPLES = """examples:
  python -m bench.swiftspec                                  all of it, in about eight minutes
  python -m bench.swiftspec --depths 1 --seconds 10 --delay-seconds 5    a first look
  python -m bench.swiftspec --depths 1 --delays 0 --temperature 0.8      no delays, sampled
  python -m bench.swiftspec --delays 2 10 --out /tmp/links.json          other delays
"""
LEAST_ROUNDS = 2
"""Answers of each side at least, however long they take."""
WARM_UP = 2
"""Answers of each side before those that count: what it learns of a link, it learns there."""


@dataclass(slots=True)
class Found:
    """Everything that was found with one target."""

    near: dict[str, Figures]
    """Figures by side, each at its best link."""
    far: dict[float, dict[str, Figures]]
    """Figures by milliseconds each way and side, over gRPC."""
    texts: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """Number of the prompt, and what was answered: of all answers that were compared."""
    facts: dict[str, Any] = field(default_factory=dict)


def main() -> int:
    """Measure, print tables, write JSON and pictures; return 1 where texts differ."""
    options = parse()
    load, delays = os.getloadavg(), sorted({0.0, *options.delays})
    found = {depth: asyncio.run(measure(depth, delays, options)) for depth in options.depths}
    claims = {depth: verdicts(one.far) for depth, one in found.items()}
    quoted: dict[str, float] = {}
    for depth, one in found.items():
        quoted |= ratios(depth, one.near, one.far)
    write_run(
        options.out,
        "swiftspec",
        {
            depth: {
                "near": {name: asdict(each) for name, each in one.near.items()},
                "by_delay_ms": {
                    delay: {name: asdict(each) for name, each in sides.items()}
                    for delay, sides in one.far.items()
                },
                "claims": [asdict(each) for each in claims[depth]],
                "answers_compared": len(one.texts),
                "prompts_with_different_texts": differing(one.texts),
                **one.facts,
            }
            for depth, one in found.items()
        },
        quoted,
        load,
    )
    for depth, one in found.items():
        show(depth, one, claims[depth])
    plot_delays({depth: one.far for depth, one in found.items()}, options.out.with_suffix(".png"))
    put_title(options.out)
    return 1 if any(differing(one.texts) for one in found.values()) else 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 8], help="times the demo's")
    parser.add_argument(
        "--delays", type=float, nargs="+", default=[0.0, 1.0, 5.0, 20.0], help="ms added each way"
    )
    parser.add_argument("--seconds", type=float, default=40, help="of each depth, side by side")
    parser.add_argument("--delay-seconds", type=float, default=15, help="of each depth and delay")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0, help="with seed 1")
    parser.add_argument("--keep", action="store_true", help="leave the deeper checkpoint there")
    parser.add_argument("--out", type=Path, default=RESULTS / "swiftspec.json")
    options = parser.parse_args()
    if min(options.depths) < 1 or min(options.delays) < 0:
        parser.error("--depths are 1 or more, --delays 0 or more")
    if options.max_tokens < 2 or options.prompts < 1:
        parser.error("--max-tokens is 2 or more, --prompts 1 or more")
    return options


async def measure(depth: int, delays: Sequence[float], options: argparse.Namespace) -> Found:
    """Return what is found with a target of one depth."""
    nodes_ahead, chosen = NODES_AHEAD.get(depth, 96), prompts()[: options.prompts]
    asked = drafted_alone(read_service(options.file), nodes_ahead)
    with deeper(asked, depth, options) as (service, size), tempfile.TemporaryDirectory() as folder:
        async with contextlib.AsyncExitStack() as stack:
            tell = functools.partial(say, f"{depth} x")
            sides = await all_started(stack, service, Path(folder), tell)
            parallel = {name: sides[name] for name in PARALLEL}
            transports = await link_near(list(parallel.values()))
            near = await compare(f"{depth} x", sides, chosen, options.seconds, options)
            far: dict[float, dict[str, list[Answer]]] = {}
            seconds = options.delay_seconds
            for delay in delays:
                async with delayed(list(parallel.values()), 1e-3 * delay):
                    name = f"{depth} x, {delay:g} ms each way"
                    far[delay] = await compare(name, parallel, chosen, seconds, options)
    every = [near, *far.values()]
    return Found(
        near=by_side(near),
        far={delay: by_side(answers) for delay, answers in far.items()},
        texts=[
            (number % len(chosen), answer.token_ids)
            for answers in every
            for own in answers.values()
            for number, answer in enumerate(own)
        ],
        facts={
            "nodes_ahead": nodes_ahead,
            "checkpoint_mb": round(size / 1e6),
            "dtype": sides[COLOCATED].target.facts["dtype"],
            "step_seconds": {
                name: side.target.facts["step_seconds"] for name, side in sides.items()
            },
            "near_links": transports,
        },
    )


def drafted_alone(service: SpeculativeService, nodes_ahead: int) -> SpeculativeService:
    """Return the service with its draft always on, as the only source of draft tokens."""
    small = with_engine(service, max_context=MAX_CONTEXT, max_running=1)
    return with_speculation(
        small, mode=SpeculationMode.STATIC, nodes_ahead=nodes_ahead, sources=(Proposer.DRAFT,)
    )


async def compare(
    name: str,
    sides: Mapping[str, Side],
    chosen: Sequence[Prompt],
    seconds: float,
    options: argparse.Namespace,
) -> dict[str, list[Answer]]:
    """Return the answers of each side; they take turns at every prompt, for so many seconds.

    Where the colocated side is among them, its target also answers without its draft.
    """
    names = [*([PLAIN] if COLOCATED in sides else []), *sides]

    async def ask(side: str, prompt: Prompt) -> Answer:
        one = sides[COLOCATED if side == PLAIN else side]
        return await one.ask(prompt, options.max_tokens, options.temperature, side != PLAIN)

    for prompt in chosen[:WARM_UP]:
        for side in names:
            await ask(side, prompt)
    found: dict[str, list[Answer]] = {side: [] for side in names}
    began, number = time.monotonic(), 0
    while number < LEAST_ROUNDS or time.monotonic() - began < seconds:
        left = max(0.0, seconds - (time.monotonic() - began))
        say(name, f"round {number + 1}, {left:.0f} s left")
        first = number % len(names)
        for side in (*names[first:], *names[:first]):
            found[side].append(await ask(side, chosen[number % len(chosen)]))
        number += 1
    return found


def say(what: str, words: str) -> None:
    """Tell how far it is with one depth, or with one delay of it."""
    print(f"{what}: {words}", file=sys.stderr, flush=True)


def show(depth: int, found: Found, claims: Sequence[Verdict]) -> None:
    """Print the tables of one depth, and what is claimed of delays."""
    console = Console(width=110)
    console.print(table(f"{depth} x, each at its best link", found.near))
    for delay, sides in found.far.items():
        console.print(table(f"{depth} x, gRPC, {delay:g} ms added each way", sides))
    for one in claims:
        word = "met" if one.had else "missed"
        print(
            f"{depth} x, {one.side}, round trip {one.round_trip_ms:g} ms longer: {one.claim}: "
            f"{one.found:.3f}, bound {one.bound:.3f}: {word}"
        )
    different = differing(found.texts)
    same = f"texts differ at prompts {different}" if different else "all texts are the same"
    print(f"{depth} x: {len(found.texts)} answers, {same}")


def table(title: str, sides: Mapping[str, Figures]) -> Table:
    """Return figures, a column for each side."""
    made = Table(title, *sides)
    columns = [cells(one) for one in sides.values()]
    for label in columns[0]:
        made.add_row(label, *(column[label] for column in columns))
    return made


def cells(one: Figures) -> dict[str, str]:
    """Return the figures of one side, as they are shown."""
    over = one.over_mirrored
    own = "-" if one.draft_fall_ins is None else f"{one.draft_fall_ins:.0%}"
    return {
        "tokens a second": f"{one.tokens_per_second:.0f}",
        "over mirrored (range)": f"{over.median:.2f} ({over.low:.2f} to {over.high:.2f})",
        "tokens per pass": f"{one.tokens_per_pass:.2f}",
        "ms a step": f"{one.milliseconds_per_step:.2f}",
        "fall-ins, target's copy": f"{one.fall_ins:.0%}",
        "fall-ins, draft's tree": own,
        "target idle": f"{one.target_idle:.0%}",
        "draft idle": f"{one.draft_idle:.0%}",
        "draft passes a pass": f"{one.draft_passes_per_pass:.1f}",
        "draft rows a pass": f"{one.draft_rows_per_pass:.1f}",
        "of them computed again": f"{one.recomputed_per_pass:.1f}",
        "messages a token": f"{one.messages_per_token:.2f}",
        "bytes a token": f"{one.bytes_per_token:.0f}",
        "answers": f"{one.answers}",
    }


if __name__ == "__main__":
    sys.exit(main())
