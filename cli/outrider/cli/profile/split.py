"""`outrider profile --gpus N`: how to share out a machine's devices between target and draft.

Measures a pass of either model at every degree of tensor parallelism, or takes a table that was
measured elsewhere. Leaves the choice to `split_choice`, and what is printed to `split_table`.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.failures import BadInput, Failure
from outrider.cli.machine import gpus
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.placement.choose import Chooser
from outrider.cli.placement.facts import Facts
from outrider.cli.profile.split_choice import (
    WIDTH,
    Split,
    SplitCosts,
    recommended,
    splits,
)
from outrider.cli.service.arrangement import changed
from outrider.cli.service.file import read_service
from outrider.cli.terminal.text import read_text
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.supervisor import StartOptions
from outrider.contract import processors
from outrider.contract.settings import Device, Role, WorkerSettings
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

NAME = "split"
"""Name of this work in progress shown and in logs."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What is shared out: GPUs, or ranks of one thread each on processors."""

    count: int
    on_gpu: bool

    def check_here(self) -> None:
        """Raise `BadInput` if this machine has fewer."""
        here = gpus.visible(gpus.present(), os.environ) if self.on_gpu else processors.count()
        if self.count > here:
            what, option = ("GPUs", "--gpus") if self.on_gpu else ("processors", "--ranks")
            raise BadInput(
                f"{option}: {self.count} is not allowed; this machine has {here} {what}. What was "
                "measured on another one can be given by --table"
            )


async def split(
    file: Path, devices: Devices, start: StartOptions, table: Path | None = None
) -> dict[str, Any]:
    """Return the costs, every split and the one to take, as JSON has them; raises `Failure`."""
    service = read_service(file)
    _check(file, service)
    facts = Facts.read(Chooser.of(service, start).file)
    costs = await _measured(service, devices, start) if table is None else read_table(table)
    try:
        found = splits(SplitCosts.of(costs), devices.count, facts.acceptance)
    except ValueError as error:
        raise BadInput(f"{table or NAME}: {error}") from None
    return {
        "devices": devices.count,
        "kind": "gpus" if devices.on_gpu else "ranks",
        "acceptance": round(facts.acceptance, 3),
        "acceptance_is_measured": facts.first_guesses > 0,
        "costs": costs,
        "splits": [as_json(one) for one in found],
        "recommended": as_json(recommended(found)),
    }


def _check(file: Path, service: SpeculativeService) -> None:
    """Raise `BadInput` for a service that nothing can be split for."""
    draft, stages = service.spec.draft, service.spec.target.parallelism.stages
    if draft is None or draft.replicas == 0:
        raise BadInput(f"{file}: spec.draft: missing; there is nothing to share devices with")
    if stages > 1:
        raise BadInput(
            f"{file}: spec.target.parallelism.pipeline: {stages} is not split; allowed: 1"
        )


def as_json(one: Split) -> dict[str, Any]:
    """Return a split as JSON has it."""
    return dataclasses.asdict(one) | {"width": WIDTH, "nodes_ahead": one.nodes_ahead}


def read_table(file: Path) -> dict[str, Any]:
    """Return step costs that were measured elsewhere: what `--json` printed, or its `costs`.

    Raises `BadInput`.
    """
    try:
        found = json.loads(read_text(file))
    except ValueError as error:
        raise BadInput(f"{file}: not JSON: {error}") from None
    costs = found.get("costs", found) if isinstance(found, dict) else None
    if not isinstance(costs, dict):
        raise BadInput(f"{file}: an object with target and draft is expected")
    return costs


async def _measured(
    service: SpeculativeService, devices: Devices, start: StartOptions
) -> dict[str, Any]:
    run, progress = RunFolder(start.folder), start.progress
    wanted = list(jobs(service, devices, start.options))
    costs: dict[str, Any] = {}
    try:
        for worker in Chooser.of(service, start).undecided.preparations:
            await ask_worker("prepare", worker.name, worker.settings, start.command, run, progress)
        for done, (role, degree, one) in enumerate(wanted):
            progress.stage(NAME, f"{role} on {degree}", done, len(wanted))
            measured = await ask_worker("measure", NAME, one, start.command, run)
            if not measured:
                raise Failure(f"measuring ended without a result; its log is {run.log(NAME)}.")
            costs.setdefault(role, {})[str(degree)] = {"rows": measured["rows"]}
    finally:
        progress.clear()
    run.remove()
    return costs


def jobs(
    service: SpeculativeService, devices: Devices, options: PlanOptions
) -> Iterator[tuple[Role, int, WorkerSettings]]:
    """Yield what is measured: either model at every degree that leaves the other one a device, and
    the target with all of them, which decodes plainly then."""
    for degree in range(1, devices.count + 1):
        alone = degree == devices.count
        planned = plan(at_degrees(service, degree, 1 if alone else degree), options)
        for role in (Role.TARGET,) if alone else (Role.TARGET, Role.DRAFT):
            yield role, degree, _alone(planned.of(role)[0].settings, devices)


def _alone(settings: WorkerSettings, devices: Devices) -> WorkerSettings:
    """Return the settings of a worker that only measures, on such devices."""
    return dataclasses.replace(
        settings,
        device=Device.GPU if devices.on_gpu else Device.CPU,
        threads=settings.threads if devices.on_gpu else 1,
        api_keys_file=None,
        allowed_hosts=(),
        tls_cert=None,
        tls_key=None,
    )


def at_degrees(service: SpeculativeService, target: int, draft: int) -> SpeculativeService:
    """Return the service with so many ranks of either model, each a process of its own."""
    spec = service.spec
    assert spec.draft is not None
    return changed(
        service,
        target={"parallelism": _tensor(spec.target.parallelism, target)},
        draft={
            "parallelism": _tensor(spec.draft.parallelism, draft),
            "placement": Placement.SEPARATE,
        },
        speculation={"mode": SpeculationMode.ADAPTIVE},
    )


def _tensor(parallelism: Any, degree: int) -> Any:
    return parallelism.model_copy(update={"tensor": degree})
