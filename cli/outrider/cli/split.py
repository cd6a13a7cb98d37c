"""`outrider profile --gpus N`: how to share out a machine's devices between target and draft.

Measures a pass of either model at every degree of tensor parallelism, or takes a table that was
measured elsewhere; renders the table that it chose from. Leaves the choice to `placement.split`.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from outrider.cli import gpus, processors
from outrider.cli.failures import BadInput, Failure
from outrider.cli.placement.choose import Chooser
from outrider.cli.placement.facts import Facts
from outrider.cli.placement.split import (
    WIDTH,
    Split,
    SplitCosts,
    recommended,
    splits,
)
from outrider.cli.preparation import prepare, records
from outrider.cli.process import WORKER, Command
from outrider.cli.progress import reporter
from outrider.cli.run_dir import RunFolder
from outrider.cli.service_file import read_service
from outrider.cli.trial import Workshop
from outrider.contract.settings import Device, Role, WorkerSettings
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import Placement, SpecError, SpeculativeService, load

GPU = "nvidia.com/gpu"
NAME = "split"
"""Of this work in progress shown and in logs."""
LOCAL = "file://"


@dataclass(frozen=True, slots=True)
class Devices:
    """What is shared out: GPUs, or ranks of one thread each on processors."""

    count: int
    on_gpu: bool

    @property
    def words(self) -> str:
        """As sentences have it."""
        return f"{self.count} {'GPUs' if self.on_gpu else 'ranks'}"

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
    file: Path,
    devices: Devices,
    table: Path | None = None,
    *,
    command: Command = WORKER,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the costs, every split and the one to take, as JSON has them; raises `Failure`."""
    service = read_service(file)
    if service.spec.draft is None:
        raise BadInput(f"{file}: spec.draft: missing; there is nothing to share devices with")
    workshop = Workshop(PlanOptions(), reporter(), command, folder)
    facts = Facts.read(Chooser.of(service, workshop).file)
    costs = await _measured(service, devices, workshop) if table is None else read_table(table)
    found = splits(_read(costs, table), devices.count, facts.acceptance, shared=not devices.on_gpu)
    return {
        "devices": devices.count,
        "kind": "gpus" if devices.on_gpu else "ranks",
        "acceptance": round(facts.acceptance, 3),
        "acceptance_is_measured": facts.first_guesses > 0,
        "costs": costs,
        "splits": [as_json(one) for one in found],
        "recommended": as_json(recommended(found)),
    }


def as_json(one: Split) -> dict[str, Any]:
    """Return a split as JSON has it."""
    return dataclasses.asdict(one) | {"width": WIDTH, "nodes_ahead": one.nodes_ahead}


def read_table(file: Path) -> dict[str, Any]:
    """Return step costs that were measured elsewhere: what `--json` printed, or its `costs`.

    Raises `BadInput`.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{file}: not JSON: {error}") from None
    costs = found.get("costs", found) if isinstance(found, dict) else None
    if not isinstance(costs, dict):
        raise BadInput(f"{file}: an object with target and draft is expected")
    return costs


def _read(costs: Mapping[str, Any], table: Path | None) -> SplitCosts:
    try:
        return SplitCosts.of(costs)
    except ValueError as error:
        raise BadInput(f"{table or NAME}: {error}") from None


async def _measured(
    service: SpeculativeService, devices: Devices, workshop: Workshop
) -> dict[str, Any]:
    devices.check_here()
    run, progress = RunFolder(workshop.folder), workshop.progress
    jobs = list(_jobs(service, devices, workshop.options))
    costs: dict[str, Any] = {}
    try:
        await prepare("models", Chooser.of(service, workshop).settings, WORKER, run, progress)
        for done, (role, degree, settings) in enumerate(jobs):
            progress.stage(NAME, f"{role} on {degree}", done, len(jobs))
            measured = await _pass_costs(settings, workshop.command, run)
            costs.setdefault(role, {})[str(degree)] = {"rows": measured["rows"]}
    finally:
        progress.clear()
    run.remove()
    return costs


async def _pass_costs(settings: WorkerSettings, command: Command, run: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] | None = None
    async for record in records("measure", NAME, settings, command, run):
        found = record if "rows" in record else found
    if found is None:
        raise Failure(f"measuring ended without a result; its log is {run.log(NAME)}.")
    return found


def _jobs(
    service: SpeculativeService, devices: Devices, options: PlanOptions
) -> Iterator[tuple[Role, int, WorkerSettings]]:
    """Yield what is measured: either model at every degree that leaves the other one a device, and
    the target with all of them, which decodes plainly then."""
    for degree in range(1, devices.count + 1):
        shared_out = at_degrees(service, degree, min(degree, max(1, devices.count - 1)))
        planned = plan(shared_out, options)
        device = Device.GPU if devices.on_gpu else Device.CPU
        for role in (Role.TARGET, Role.DRAFT):
            if role is Role.TARGET or degree < devices.count:
                settings = planned.of(role)[0].settings
                threads = settings.threads if devices.on_gpu else 1
                yield (
                    role,
                    degree,
                    dataclasses.replace(
                        settings,
                        device=device,
                        threads=threads,
                        api_keys_file=None,
                        tls_cert=None,
                        tls_key=None,
                    ),
                )


def at_degrees(service: SpeculativeService, target: int, draft: int) -> SpeculativeService:
    """Return the service with so many ranks of either model, each a process of its own."""
    spec = service.spec
    assert spec.draft is not None
    roles = {
        "target": _with_tensor(spec.target, target),
        "draft": _with_tensor(spec.draft, draft).model_copy(
            update={"placement": Placement.SEPARATE}
        ),
    }
    return service.model_copy(update={"spec": spec.model_copy(update=roles)})


def _with_tensor(role: Any, degree: int) -> Any:
    parallelism = role.parallelism.model_copy(update={"tensor": degree})
    return role.model_copy(update={"parallelism": parallelism})


def write_service(file: Path, found: Mapping[str, Any], to: Path) -> None:
    """Write the service of `file` with the split that is recommended; raises `BadInput`."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    one, spec = found["recommended"], document["spec"]
    for role in (Role.TARGET, Role.DRAFT):
        part = spec[role]
        if one[role]:
            part["parallelism"] = (part.get("parallelism") or {}) | {"tensor": one[role]}
            if found["kind"] == "gpus":
                _limit_gpus(part, one[role])
        _keep_local(part["model"], file, to)
    speculation = spec.setdefault("speculation", {})
    if one["draft"]:
        spec["draft"]["placement"] = str(Placement.SEPARATE)
        speculation |= {"maxRows": one["rows"], "nodesAhead": one["nodes_ahead"]}
    else:
        speculation["mode"] = "Disabled"
    text = yaml.safe_dump(document, sort_keys=False)
    try:
        load(text)
        to.write_text(text, encoding="utf-8")
    except SpecError as error:
        raise BadInput(f"{to}: this split is not a service: {error}") from None
    except OSError as error:
        raise BadInput(f"{to}: {error.strerror}") from None


def _limit_gpus(part: dict[str, Any], count: int) -> None:
    resources = part.setdefault("resources", {})
    resources["limits"] = (resources.get("limits") or {}) | {GPU: count}


def _keep_local(model: dict[str, Any], file: Path, to: Path) -> None:
    """Let a path relative to the file's folder mean the same from another folder."""
    uri = str(model.get("uri", ""))
    path = uri.removeprefix(LOCAL)
    if uri.startswith(LOCAL) and not path.startswith("/") and to.parent != file.parent:
        model["uri"] = f"{LOCAL}{(file.absolute().parent / path).resolve()}"


def render(found: Mapping[str, Any]) -> Group:
    """Return the table of splits, and the one to take."""
    words = "measured" if found["acceptance_is_measured"] else "assumed"
    devices = Devices(found["devices"], found["kind"] == "gpus").words
    table = Table(
        box=SIMPLE_HEAD, header_style="dim", title_justify="left", title=f"{devices}: every split"
    )
    for column in ("target + draft", "verify pass", "draft pass", "rows", "depth", "tokens/s"):
        table.add_column(column, justify="right")
    best = found["recommended"]
    for one in found["splits"]:
        table.add_row(*_cells(one), style="bold" if one == best else "")
    name = _name(best)
    lines = [
        Text(f"recommended: {name} of {devices}", style="bold"),
        Text(
            f"  the draft's first guess is right in {found['acceptance']:.0%} ({words}); "
            f"trees {best['width']} wide",
            style="dim",
        ),
    ]
    return Group(table, *lines)


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    drafted = bool(one["draft"])
    return (
        _name(one),
        f"{1e3 * one['target_seconds']:.2f} ms",
        f"{1e3 * one['draft_seconds']:.2f} ms" if drafted else "-",
        str(one["rows"]) if drafted else "-",
        str(one["depth"]) if drafted else "-",
        f"{one['tokens_per_second']:.1f}",
    )


def _name(one: Mapping[str, Any]) -> str:
    return f"{one['target']} + {one['draft']}" if one["draft"] else f"{one['target']}, no draft"


def show(found: Mapping[str, Any]) -> None:
    """Print the table on stdout."""
    Console().print(render(found))
