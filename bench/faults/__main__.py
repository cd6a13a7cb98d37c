"""Draft pools under fire: `python -m bench.faults`.

Real targets and drafts on loopback under load, with drafts killed and started again, stopped,
partitioned and delayed by a plan that follows from a seed. Each fault comes alone, after a calm
time that it is compared with. Prints what was seen of each fault, and each claim as met or missed;
ends with status 1 if a text is wrong or a request is lost. Linux only.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.faults.claims import Claim, claims, listed, table
from bench.faults.figures import LOOKED_FOR, FaultFigures, Gap, calm_gap, seen
from bench.faults.injector import Event, inject
from bench.faults.load import ask, endless, jobs, plain
from bench.faults.plan import Fault, plan
from bench.faults.pool import Pool, running
from bench.faults.samples import Sample, watch
from bench.record.report import RESULTS, write_run
from bench.sides.services import SERVICE
from outrider.cli.load.exchange import Exchange
from outrider.cli.load.summary import compare
from outrider.cli.service.file import read_service

EXAMPLES = """examples:
  python -m bench.faults                             two targets, three drafts, ten minutes
  python -m bench.faults --seconds 120               a first look: every kind of fault once or twice
  python -m bench.faults --seed 7                    other faults, at other times
  python -m bench.faults --targets 3 --drafts 2 --users 4    another pool
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that was seen of one run."""

    events: list[Event]
    samples: list[Sample]
    plain: list[Exchange]
    """Answers without drafts."""
    outcomes: list[Exchange]


def main() -> int:
    """Run, print tables, write JSON; return 1 if a text is wrong or a request is lost."""
    options, load = parse(), os.getloadavg()
    faults = plan(options.seed, options.drafts, options.seconds)
    print(f"seed {options.seed}: {len(faults)} faults in {options.seconds:g} s", file=sys.stderr)
    run = measured(options, faults)
    found, answered = figures(run, options.targets, options.seconds)
    print(table(found), listed(answered), sep="\n\n")
    write_run(
        options.out,
        "faults",
        {
            "seed": options.seed,
            "planned": faults,
            "faults": found,
            "claims": [{**asdict(one), "verdict": one.verdict} for one in answered],
            "requests": len(run.outcomes),
        },
        {},
        load,
    )
    text, lost = answered[:2]
    return 0 if text.had and lost.had else 1


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--users", type=int, default=2, help="of each target at once")
    parser.add_argument("--seconds", type=float, default=600.0, help="of load")
    parser.add_argument("--seed", type=int, default=0, help="of faults and requests")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults.json")
    return parser.parse_args()


def measured(options: argparse.Namespace, faults: Sequence[Fault]) -> Run:
    """Start a pool, take its plain texts, and keep up the load while faults happen."""
    service = read_service(options.file)
    pool_of = (service, options.targets, options.drafts, options.users)
    with tempfile.TemporaryDirectory() as folder, running(*pool_of, Path(folder)) as pool:
        return asyncio.run(under_fire(pool, faults, options))


async def under_fire(pool: Pool, faults: Sequence[Fault], options: argparse.Namespace) -> Run:
    """Return what was seen of a pool that has just started."""
    asked = jobs(options.seed)
    print(f"{len(asked)} texts without drafts", file=sys.stderr)
    texts_without_drafts = await plain(pool.targets[0], asked)
    await asyncio.to_thread(pool.pair)
    started, samples = time.perf_counter(), list[Sample]()

    def clock() -> float:
        return time.perf_counter() - started

    watching = asyncio.create_task(watch(pool, clock, samples))
    try:
        async with asyncio.TaskGroup() as group:
            loads = [
                group.create_task(
                    ask(
                        target,
                        endless(asked, options.seed + number),
                        options.users,
                        started,
                        seconds=options.seconds,
                    )
                )
                for number, target in enumerate(pool.targets)
            ]
            injecting = group.create_task(inject(pool, faults, clock, options.seconds))
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    outcomes = [one for load in loads for one in load.result()]
    return Run(injecting.result(), samples, texts_without_drafts, outcomes)


def figures(run: Run, targets: int, seconds: float) -> tuple[list[FaultFigures], list[Claim]]:
    """Return what was seen of each fault, and what is claimed of all.

    Those whose draft came back too late to be watched before the load's end are left out.
    """
    gaps = list(gaps_of(run.outcomes))
    watched = [one for one in run.events if one.returned + LOOKED_FOR <= seconds]
    found = [seen(event, run.samples, gaps, targets) for event in watched]
    compared = compare([*run.plain, *run.outcomes])
    calm = calm_gap(gaps, run.events)
    return found, claims(run.outcomes, compared, found, calm, targets)


def gaps_of(outcomes: Iterable[Exchange]) -> Iterable[Gap]:
    """Yield the pauses of all streams."""
    for one in outcomes:
        for before, after in itertools.pairwise(one.times):
            yield Gap(before, after)


if __name__ == "__main__":
    sys.exit(main())
