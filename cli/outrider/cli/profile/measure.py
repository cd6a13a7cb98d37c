"""`outrider profile`: what passes cost here, and which arrangement of the service is fastest.

Workers measure their step costs, `placement` the pair, `trial` times whole services.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from outrider.cli.failures import BadInput, Failure
from outrider.cli.local.service import placed
from outrider.cli.local.trial import Timed, does_not_run, running, timed
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.placement.choose import Choice, Chooser
from outrider.cli.profile import step_costs
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.cli.terminal.progress import reporter
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.process import WORKER, Command
from outrider.cli.workers.supervisor import StartOptions
from outrider.client.errors import ClientError
from outrider.contract.settings import Role
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import SpeculativeService

BAR_CELLS = 24


async def profile(
    file: Path,
    options: PlanOptions,
    *,
    quick: bool = False,
    command: Command = WORKER,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return what workers measured, as they printed it, and the recommendation; raises `Failure`.

    `quick` recommends as `placement: Auto` does, which goes by what is measured here from then on.
    """
    service = read_service(file)
    start, run = StartOptions(options, reporter(), command, folder), RunFolder(folder)
    chooser = Chooser.of(service, start)
    measured: dict[str, Any] = {}
    try:
        workers = chooser.undecided.workers
        for worker in workers:
            inner = worker.settings.colocated if len(workers) == 1 else None
            one = dataclasses.replace(worker.settings, await_arrangement=False, colocated=inner)
            await ask_worker("prepare", "models", one, command, run, start.progress)
            found = await ask_worker("profile", "profile", one, command, run, start.progress)
            if not found:
                raise Failure(
                    f"the profile ended without a result; its log is {run.log('profile')}."
                )
            measured |= found
        async with placed(service, start, anew=True) as (local, _):
            choice = local.choice
        compared = [e.arrangement for e in choice.found] if choice else chooser.arrangements
        rates = {} if quick else await _timed(service, compared, start)
        if not quick:
            choice = chooser.timed({name: one.tokens_per_second for name, one in rates.items()})
        if choice is None:
            raise BadInput(f"{file}: a model is cut, and only timed whole; leave out --quick")
    finally:
        start.progress.clear()
    run.remove()
    return measured | {"recommendation": advice(choice, rates)}


async def _timed(
    service: SpeculativeService, compared: Sequence[Arrangement], start: StartOptions
) -> dict[str, Timed]:
    """Run arrangements one after the other, and time those that run."""
    options, progress, command, folder = start
    found = {}
    for done, one in enumerate(compared):
        progress.stage("trial", one.name, done, len(compared))
        try:
            begun = running(service, one, options, progress, command=command, folder=folder)
            async with begun as client:
                found[one.name] = await timed(client)
        except (Failure, ClientError) as error:
            progress.note(does_not_run(one, error))
    progress.finish("trial")
    return found


def advice(choice: Choice, rates: Mapping[str, Timed]) -> dict[str, Any]:
    """Return the recommendation: the fastest arrangement, and what all of them give."""
    best = choice.best.arrangement
    return {
        "arrangement": best.name,
        "placement": str(best.placement) if best.placement else None,
        "threads": {"target": best.threads, "draft": best.draft_threads},
        "over_plain": round(choice.over_plain(choice.best), 2),
        "expected": {one.arrangement.name: round(one.tokens_per_second, 1) for one in choice.found},
        "measured": {name: dataclasses.asdict(one) for name, one in rates.items()},
    }


def render(measured: Mapping[str, Any]) -> Group:
    """Return tables of step costs by role, rows and threads, then the recommendation."""
    roles = [role for role in Role if measured.get(role)]
    tables = [costs(role, measured[role]) for role in roles]
    target = [step_costs.table(title, found) for title, found in target_costs(measured)]
    return Group(*tables, *target, *recommendation(measured.get("recommendation") or {}))


def target_costs(measured: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The target's whole step-cost table with the most threads, under its title."""
    by_threads = measured.get(Role.TARGET) or {}
    if not by_threads:
        return []
    most = max(by_threads, key=int)
    title = f"target: one pass with {most} thread{'s' if most != '1' else ''}"
    return [(title, by_threads[most]["step_costs"])]


def plot(measured: Mapping[str, Any], path: Path) -> None:
    """Write the target's step costs as a picture."""
    for title, found in target_costs(measured):
        step_costs.plot(title, found, path)


def costs(role: str, by_threads: Mapping[str, Any]) -> Table:
    """Return the milliseconds of one pass: lines by rows, columns by threads."""
    threads = sorted(by_threads, key=int)
    seconds = {t: {int(n): s for n, s in by_threads[t]["rows"].items()} for t in threads}
    table = Table(
        box=SIMPLE_HEAD, header_style="dim", title=f"{role}: one pass", title_justify="left"
    )
    table.add_column("rows", justify="right")
    for t in threads:
        table.add_column(f"{t} thread{'s' if t != '1' else ''}", justify="right")
        table.add_column("", min_width=BAR_CELLS)
    longest = max((s for column in seconds.values() for s in column.values()), default=0.0)
    for n in sorted({n for column in seconds.values() for n in column}):
        cells = (c for t in threads for c in _cells(seconds[t].get(n), longest))
        table.add_row(str(n), *cells)
    return table


def _cells(seconds: float | None, longest: float) -> tuple[str | Text, str | Text]:
    if seconds is None:
        return "-", ""
    filled = max(1, round(BAR_CELLS * seconds / longest)) if longest > 0 else 0
    return f"{seconds * 1000:.2f} ms", Text("━" * filled, style="cyan")


def recommendation(advice: Mapping[str, Any], prefix: str = "") -> list[Text]:
    """One line for each part of the advice; nested parts are named by their path."""
    lines = [Text("recommended here", style="bold")] if advice and not prefix else []
    for key, value in advice.items():
        if isinstance(value, Mapping):
            lines += recommendation(value, f"{prefix}{key} ")
        else:
            name = f"{prefix}{key}".replace("_", " ")
            lines.append(Text.assemble((f"  {name:28} ", "dim"), str(value)))
    return lines


def show(measured: Mapping[str, Any]) -> None:
    """Print tables and recommendation on stdout."""
    Console().print(render(measured))
