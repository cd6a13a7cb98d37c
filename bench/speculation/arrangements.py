"""Arrangements of a service that are compared, and the turns that its sides take."""

import argparse
import sys
from collections.abc import Iterator

from bench.record.report import Prompt
from bench.sides.services import MODES, Side
from bench.speculation.figures import Measured
from outrider.cli.service.arrangement import Arrangement
from outrider.contract import processors
from outrider.operator.spec import Placement

ARRANGEMENTS = {
    "Colocated": Arrangement(Placement.COLOCATED, processors.count()),
    "Separate": Arrangement(Placement.SEPARATE, max(1, processors.count() - 1)),
    "SamePod": Arrangement(Placement.SAME_POD, max(1, processors.count() - 1)),
    "Auto": Arrangement(Placement.AUTO, processors.count()),
}
QUOTED = ("Colocated", "Separate")
"""Sides that the page of benchmarks quotes, and that the pinned commit has too."""


def plain_arrangements() -> Iterator[tuple[str, Arrangement]]:
    """Yield plain decoding with one thread and with all."""
    for threads in sorted({1, processors.count()}):
        yield f"plain {threads}", Arrangement(None, threads)


async def repeat(
    sides: dict[str, Side], chosen: list[Prompt], options: argparse.Namespace
) -> dict[str, dict[str, Measured]]:
    """Return what was measured, by mode and side; sides take turns at every prompt."""
    measured = {mode: {name: Measured() for name in sides} for mode in MODES}
    for repetition in range(options.repetitions):
        for mode, found in measured.items():
            print(f"repetition {repetition + 1} of {options.repetitions}, {mode}", file=sys.stderr)
            before = {name: await one.counts() for name, one in sides.items()}
            await one_repetition(sides, chosen, options.max_tokens, mode, repetition, found)
            for name, one in sides.items():
                after, then = await one.counts(), before[name]
                if after is not None and then is not None:
                    found[name].counts.append(after.since(then))
    return measured


async def one_repetition(
    sides: dict[str, Side],
    chosen: list[Prompt],
    tokens: int,
    mode: str,
    repetition: int,
    found: dict[str, Measured],
) -> None:
    """Ask every side every prompt; each begins as often as the others."""
    names = list(sides)
    for one in found.values():
        one.answers.append([])
    for number, prompt in enumerate(chosen):
        first = (repetition + number) % len(names)
        for name in (*names[first:], *names[:first]):
            answer = await sides[name].ask(prompt, tokens, MODES[mode])
            found[name].answers[-1].append(answer)
