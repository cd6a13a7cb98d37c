"""Sources of draft tokens, each alone and together: `python -m bench.sources`.

Three sets of prompts: chats, edits that repeat most of what they are given, and questions over
quoted passages. Services run at once and are asked one after the other, each alone: plain decoding,
the text as the only source, the draft as the only one (`Colocated`), and text and
draft together, which is the default. Finished answers are left out: prompts that are asked again
would be answered from them. Every answer is checked
against plain decoding's. `--lookup` adds llama.cpp with its prompt lookup, and without: the ratio
of each to llama.cpp's own plain decoding is what can be compared. `--stages` cuts the target over
stages, a process each: then plain decoding and the text alone are compared.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.prompts.sources import chats, edits, quoted
from bench.record.pictures import put_title
from bench.record.report import RESULTS, Prompt, headless_pyplot, write_run
from bench.sides import llama_server
from bench.sides.llama_server import LlamaCpp
from bench.sides.peer import uv
from bench.sides.services import (
    MODES,
    SERVICE,
    WITHOUT_ANSWERS,
    Counts,
    Service,
    started,
    turns,
    with_speculation,
    without_draft,
)
from bench.speculation.figures import Measured, geometric_mean, over, same_text, summary
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.contract import processors
from outrider.contract.sources import SOURCES
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.spec.speculation import Proposer
from outrider.worker.checkpoints.source import ModelSource

PLAIN = "plain"
SIDES: dict[str, tuple[Proposer, ...]] = {
    PLAIN: (),
    "suffix": (Proposer.SUFFIX,),
    "draft": (Proposer.DRAFT,),
    "together": WITHOUT_ANSWERS,
}
"""Sources of each side, by name."""
STAGED = (PLAIN, "suffix")
"""Sides of a target of several stages: drafts would need processors of their own."""
LOOKUP = ("llama.cpp", "llama.cpp lookup")
GOALS = {"edits": 2.0}


def main() -> int:
    """Measure, write JSON and plot, print tables."""
    options = parse()
    load = os.getloadavg()
    results = asyncio.run(run(options))
    write_run(options.out, "sources", results, all_ratios(results["sets"]), load)
    plot(results["sets"], options.out.with_suffix(".png"))
    put_title(options.out)
    for name, found in results["sets"].items():
        Console().print(table(name, found))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8, help="most of each set")
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--threads", type=int, default=processors.count())
    parser.add_argument("--mode", choices=MODES, default="greedy")
    parser.add_argument("--stages", type=int, default=1, help="of the target, a process each")
    parser.add_argument("--lookup", action="store_true", help="with llama.cpp, built by uv")
    parser.add_argument("--out", type=Path, default=RESULTS / "sources.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Ask every side every set; return the figures by set."""
    service, count = read_service(options.file), options.prompts
    sets = {
        "chats": chats(count),
        "edits": edits()[:count],
        "quoted": quoted()[:count],
    }
    sides_wanted: Sequence[str] = tuple(SIDES)
    if options.stages > 1:
        service, sides_wanted = cut_over(service, options.stages), STAGED
    async with contextlib.AsyncExitStack() as stack:
        own = {name: await side(stack, service, name, options.threads) for name in sides_wanted}
        sides: dict[str, Service | LlamaCpp] = {**own}
        if options.lookup:
            sides |= await lookups(stack, own[PLAIN], service, options.threads)
        for warm in sides.values():
            await warm.ask(sets["edits"][0], options.max_tokens, MODES[options.mode])
        found = {name: await measure(sides, chosen, options) for name, chosen in sets.items()}
    return {"sets": {name: figures(one) for name, one in found.items()}, "mode": options.mode}


def cut_over(service: SpeculativeService, stages: int) -> SpeculativeService:
    """Return a service whose target is cut over so many stages."""
    parallelism = service.spec.target.parallelism.model_copy(update={"pipeline": stages})
    target = service.spec.target.model_copy(update={"parallelism": parallelism})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"target": target})})


async def side(
    stack: contextlib.AsyncExitStack, service: SpeculativeService, name: str, threads: int
) -> Service:
    """Start a service with the sources of one side."""
    sources = SIDES[name]
    if Proposer.DRAFT not in sources:
        service = without_draft(service)
    placement = Placement.SEPARATE if staged(service) else Placement.COLOCATED
    arranged = Arrangement(placement if sources else None, threads)
    return await started(
        stack, with_speculation(service, sources=sources or WITHOUT_ANSWERS), name, arranged
    )


def staged(service: SpeculativeService) -> bool:
    """Return True if its target is cut over stages."""
    return service.spec.target.parallelism.stages > 1


async def lookups(
    stack: contextlib.AsyncExitStack, plain: Service, service: SpeculativeService, threads: int
) -> dict[str, LlamaCpp]:
    """Start llama.cpp with the target's file, without and with its prompt lookup."""
    model = ModelSource.parse(service.spec.target.model.uri).resolve()
    server, found = llama_server.built(uv()), {}
    for name, more in zip(LOOKUP, ((), ("--spec-type", "ngram-simple")), strict=True):
        running = llama_server.started(server, model, threads, *more)
        found[name] = LlamaCpp(await stack.enter_async_context(running), plain)
    return found


async def measure(
    sides: Mapping[str, Service | LlamaCpp], chosen: Sequence[Prompt], options: argparse.Namespace
) -> dict[str, Measured]:
    """Return what was measured of each side; sides take turns at every prompt."""
    measured = {name: Measured() for name in sides}
    names = list(sides)
    for repetition in range(options.repetitions):
        print(f"{chosen[0].id}: {repetition + 1} of {options.repetitions}", file=sys.stderr)
        before = {name: await one.counts() for name, one in sides.items()}
        for one in measured.values():
            one.answers.append([])
        for number, prompt in enumerate(chosen):
            for name in turns(names, repetition + number):
                answer = await sides[name].ask(prompt, options.max_tokens, MODES[options.mode])
                measured[name].answers[-1].append(answer)
        for name, asked in sides.items():
            after, then = await asked.counts(), before[name]
            if after is not None and then is not None:
                measured[name].counts.append(after.since(then))
    return measured


def figures(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """Return the figures of one set by side."""
    answers = {name: one.answers for name, one in measured.items()}
    own = {name: runs for name, runs in answers.items() if name in SIDES}
    found = {
        "same_text": same_text([*own.values()]),
        "sides": {name: asdict(summary(one)) for name, one in measured.items()},
        "over_plain": over(own, PLAIN),
        "accepted_by_source": {
            name: by_source(measured[name].counts)
            for name, sources in SIDES.items()
            if sources and name in measured
        },
    }
    if LOOKUP[0] in answers:
        found["over_llama_cpp"] = over(answers, LOOKUP[0])
    return found


def by_source(counts: Sequence[Counts]) -> dict[str, float]:
    """Return accepted node rows a pass by what proposed them."""
    passes = sum(one.target.passes for one in counts)
    return {
        kind.value: sum(one.target.source_accepted[at] for one in counts) / passes
        for at, kind in enumerate(SOURCES)
    }


def all_ratios(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return what may be quoted: sides over plain by set, and several sources over the draft."""
    ratios: dict[str, float] = {}
    for name, found in sets.items():
        rates = found["over_plain"]
        ratios |= {f"{side}_over_plain_{name}": rates[side] for side in rates if side != PLAIN}
        if "draft" in rates:
            ratios[f"together_over_draft_{name}"] = rates["together"] / rates["draft"]
        if "over_llama_cpp" in found:
            ratios[f"lookup_over_llama_cpp_{name}"] = found["over_llama_cpp"][LOOKUP[1]]
    best = [found["over_plain"].get("together") for found in sets.values()]
    if None not in best:
        ratios["together_over_plain"] = geometric_mean(best)
    return ratios


def table(name: str, found: Mapping[str, Any]) -> Table:
    """Return the figures of one set, a row for each side."""
    made = Table(f"{name}, same text {found['same_text']:.0%}", "over plain", "tokens/s", "a pass")
    for side_name, values in found["sides"].items():
        ratio = found["over_plain"].get(side_name)
        made.add_row(
            side_name,
            "-" if ratio is None else f"{ratio:.2f}",
            f"{values['tokens_per_second']['median']:.0f}",
            f"{values['tokens_per_pass']:.2f}",
        )
    return made


def plot(sets: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Bars of each side over plain decoding, by set; dotted: the goal."""
    pyplot = headless_pyplot()

    figure, axes = pyplot.subplots(1, len(sets), figsize=(10, 3.4), sharey=True)
    for axis, (name, found) in zip(axes, sets.items(), strict=True):
        for at, ratio in enumerate(found["over_plain"].values()):
            axis.bar(at, ratio, width=0.6, color=f"C{at}")
            axis.text(at, ratio / 2, f"{ratio:.2f}", ha="center", color="white")
        if name in GOALS:
            axis.axhline(GOALS[name], color="black", linestyle=":")
        axis.set_xticks(range(len(found["over_plain"])), list(found["over_plain"]))
        axis.set_title(name)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rate over plain decoding (dotted: goal)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
