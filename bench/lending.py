"""What a draft's memory brings where KV is short: `python -m bench.lending`.

The demo's pair, target and draft in one process, with a budget of memory that holds a part of the
requests that are open at all times: without the draft, and with it, its
memory lent and kept (`draft.offload: Never`), in turns. Under three minutes.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.nightjar_loads import goodput, static
from bench.nightjar_real import THREADS, Asked, of_side, positive, settle, take_turn
from bench.report import RESULTS, Spread, median_and_range, write_report
from bench.sides import SERVICE, with_engine
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.progress import reporter
from outrider.cli.service_file import read_service
from outrider.cli.trial import running
from outrider.client import Memory
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Offload, Placement, SpeculativeService

ARRANGEMENT = Arrangement(Placement.COLOCATED, THREADS)
MAX_CONTEXT = 512
NONE, LENT, KEPT = "no draft", "lent", "kept"
SIDES = {
    NONE: (static(0), Offload.NEVER),
    LENT: (goodput(), Offload.AUTO),
    KEPT: (goodput(), Offload.NEVER),
}
"""Whether each drafts, and what becomes of its draft's memory."""
COMPARED = ((LENT, KEPT), (LENT, NONE), (KEPT, NONE))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a side came to."""

    tokens_per_second: Spread
    mean_seconds: float
    expansions: int
    """How often the target's KV grew by the draft's memory."""
    more_kv: float
    """By which share it grew."""


def main() -> int:
    """Measure, write JSON, print a table; returns 1 where nothing was lent."""
    options = parse()
    load_average = os.getloadavg()
    asked = asyncio.run(measure(options))
    found = {name: figures(*one, options.at_once) for name, one in asked.items()}
    ratios = compared({name: rates(one, options.at_once) for name, (one, _) in asked.items()})
    write_report(
        options.out,
        command="python -m bench.lending " + " ".join(sys.argv[1:]),
        results={name: asdict(one) for name, one in found.items()},
        ratios={name: spread.median for name, spread in ratios.items()},
        load_average=load_average,
    )
    for name, one in found.items():
        print(
            f"{name:13} {one.tokens_per_second.median:6.0f} tokens/s, answers in "
            f"{one.mean_seconds:.2f} s, lent {one.expansions} times, {one.more_kv:.0%} more KV"
        )
    for name, spread in ratios.items():
        print(f"{name:24} {spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})")
    return status(found)


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=positive, default=16, help="requests that are open")
    parser.add_argument("--kv-memory", default="96Mi", help="of KV and the draft's weights")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--max-tokens", type=positive, default=64)
    parser.add_argument("--settle-seconds", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "lending.json")
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> dict[str, tuple[Asked, Memory | None]]:
    """Ask all services in turns; return what they answered and what became of the memory."""
    service = with_engine(
        read_service(SERVICE),
        max_running=options.at_once,
        max_context=MAX_CONTEXT,
        kv_memory=options.kv_memory,
        prefix_cache=False,  # prompts come again, which would take KV from no request
    )
    asked: dict[str, Asked] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, (side, offload) in SIDES.items():
            say(f"starting {name}")
            wanted = with_offload(of_side(service, side), offload)
            beginning = running(wanted, ARRANGEMENT, PlanOptions(), reporter())
            asked[name] = Asked(side, await stack.enter_async_context(beginning))
        for name, one in asked.items():
            say(f"{name} settles")
            await settle(one, options.at_once, options)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for one in in_turn(list(asked.values()), number):
                turn = await take_turn(one.client, options.at_once, number, options.max_tokens)
                one.turns.setdefault(options.at_once, []).append(turn)
        return {name: (one, await memory_of(one)) for name, one in asked.items()}


def in_turn(sides: Sequence[Asked], number: int) -> list[Asked]:
    """Return the sides in the order of a round: another begins each."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


async def memory_of(one: Asked) -> Memory | None:
    """Return what became of the memory of a service; None where a draft keeps its own."""
    return (await one.client.state()).memory


def with_offload(service: SpeculativeService, offload: Offload) -> SpeculativeService:
    """Return the service with its draft's memory lent or kept."""
    assert service.spec.draft is not None
    draft = service.spec.draft.model_copy(update={"offload": offload})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"draft": draft})})


def rates(one: Asked, at_once: int) -> list[float]:
    """Return the tokens a second of each round."""
    return [turn.rate for turn in one.turns[at_once]]


def figures(one: Asked, memory: Memory | None, at_once: int) -> Figures:
    """Return what a service came to."""
    return Figures(
        tokens_per_second=median_and_range(rates(one, at_once)),
        mean_seconds=statistics.mean(x for turn in one.turns[at_once] for x in turn.latencies),
        expansions=memory.expansions if memory is not None else 0,
        more_kv=share_lent(memory) if memory is not None else 0.0,
    )


def share_lent(memory: Memory) -> float:
    """Return the KV that a draft's memory makes, over that of the target alone."""
    own = memory.target_kv_bytes - (memory.lendable_bytes if memory.draft == "on_host" else 0)
    return memory.lendable_bytes / own


def compared(rates_by_name: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Return the tokens a second of one side by those of another's turn in the same round."""
    return {
        f"{one}_vs_{other}".replace(" ", "_"): median_and_range(
            [a / b for a, b in zip(rates_by_name[one], rates_by_name[other], strict=True)]
        )
        for one, other in COMPARED
    }


def status(found: Mapping[str, Figures]) -> int:
    """Return 1 where nothing was lent: KV was not short."""
    return int(found[LENT].expansions == 0)


def say(words: str) -> None:
    """Tell who waits what is being done."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
