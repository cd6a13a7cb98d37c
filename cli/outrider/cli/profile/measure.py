"""`outrider profile`: what passes cost here, and which arrangement of the service is fastest.

Workers measure their step costs, `placement` the pair, `trial` times whole services.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from outrider.cli.failures import BadInput, Failure
from outrider.cli.local.service import placed
from outrider.cli.local.trial import Timed, does_not_run, running, timed
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.placement.choose import Choice, Chooser
from outrider.cli.profile import step_costs
from outrider.cli.service.arrangement import Arrangement, threads_in_words
from outrider.cli.service.file import read_service
from outrider.cli.terminal.tables import flat
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.supervisor import StartOptions
from outrider.client.errors import ClientError
from outrider.contract.settings import Role
from outrider.operator.spec import SpeculativeService


async def profile(file: Path, start: StartOptions, *, quick: bool = False) -> dict[str, Any]:
    """Return what workers measured, as they printed it, and the recommendation; raises `Failure`.

    `quick` recommends as `placement: Auto` does, which goes by what is measured here from then on.
    """
    service = read_service(file)
    run, command = RunFolder(start.folder), start.command
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
    progress, found = start.progress, {}
    for done, one in enumerate(compared):
        progress.stage("trial", one.name, done, len(compared))
        try:
            async with running(service, one, start) as client:
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
    tables = [
        step_costs.passes(
            f"{role}: one pass", measured[role], lambda t: threads_in_words(int(t)), bars=True
        )
        for role in roles
    ]
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


def recommendation(advice: Mapping[str, Any]) -> list[Text]:
    """One line for each part of the advice; nested parts are named by their path."""
    lines = [Text("recommended here", style="bold")] if advice else []
    return lines + [
        Text.assemble((f"  {name:28} ", "dim"), str(value))
        for name, value in flat(advice, between=" ")
    ]


def show(measured: Mapping[str, Any]) -> None:
    """Print tables and recommendation on stdout."""
    Console().print(render(measured))
