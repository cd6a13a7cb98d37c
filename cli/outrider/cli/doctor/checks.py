"""Judgement of what was found on a machine: what is well, what is worth knowing, what stops a run;
and the report of it."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.doctor.findings import INSTALL, PORTS, Findings
from outrider.cli.terminal.amounts import size
from outrider.contract.version import missing_extra

TORCH = "worker-torch"
"""The extra with which workers use GPUs."""
ANY = 0
"""As a port: any that is free."""
LEAST_FREE = 2 * 10**9
"""Bytes; the demo takes 1.2 GB of disk, of which its prepared model is 0.5."""


class Grade(enum.StrEnum):
    """Weight of a check."""

    OK = "ok"
    WARNING = "warning"
    STOPS = "stops a run"


STYLES = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.STOPS: "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    grade: Grade
    words: str
    options: str = ""
    """Options that `outrider serve` then needs."""


def judged(found: Findings) -> tuple[Check, ...]:
    """Return the checks in the order in which they are read."""
    return tuple(_judged(found))


def _judged(found: Findings) -> Iterator[Check]:
    yield Check("version", Grade.OK, f"outrider {found.version}, Python {found.machine['python']}")
    yield _packages(found)
    yield _processor(found)
    yield from _kernels(found)
    yield _gpus(found)
    yield _disk(found)
    yield from _ports(found)


def _packages(found: Findings) -> Check:
    if found.missing:
        return Check("packages", Grade.STOPS, f"missing: {', '.join(found.missing)}; {INSTALL}")
    versions = {name: version for name, version in found.machine["packages"].items() if version}
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Check("packages", Grade.OK, words)


def _processor(found: Findings) -> Check:
    machine = found.machine
    flags = ", ".join(machine["flags"]) or "none of the instruction sets that matter"
    cores = _count(machine["cores"], "processor")
    if slow := machine["slow_cores"]:
        cores += f" (performance cores; {_count(slow, 'slower one')} get no thread by default)"
    words = f"{machine['cpu']}, {cores}, {machine['memory_gib']} GiB"
    return Check("processor", Grade.OK, f"{words}; {flags}")


def _kernels(found: Findings) -> Iterator[Check]:
    """Yield what the worker's probe admits, and what `dtype: auto` makes of it."""
    if found.problem:
        yield Check("kernels", Grade.STOPS, found.problem)
    if not found.processor:
        return
    said = found.processor
    paths = said["paths"]
    admitted = [one["path"] for one in paths if one["admitted"]]
    refused = [one["path"] for one in paths if not one["admitted"]]
    words = f"{said['instruction_set']}: {', '.join(admitted) or 'no numeric type'}"
    if refused:
        words += f"; {', '.join(refused)} refused: a row's result depends on its neighbours"
    yield Check("kernels", Grade.OK if admitted else Grade.STOPS, words)
    if said["dtype"]:
        by_cost = sorted(said["seconds"].items(), key=lambda item: item[1])
        costs = ", ".join(f"{path} {1e3 * seconds:.2f} ms" for path, seconds in by_cost)
        words = f"auto takes {said['dtype']} for a model like {said['model']}: a pass takes {costs}"
        threads = _count(said["threads"], "thread")
        yield Check("dtype", Grade.OK, f"{words} on average, with {threads}")


def _gpus(found: Findings) -> Check:
    if not found.gpus:
        return Check("GPUs", Grade.OK, "none: models run on the processor")
    words = f"{len(found.gpus)}: {', '.join(found.gpus)}"
    if found.torch is None:
        missing = f"they are left alone without torch; {missing_extra(TORCH)}"
        return Check("GPUs", Grade.WARNING, f"{words}; {missing}")
    return Check("GPUs", Grade.OK, words)


def _disk(found: Findings) -> Check:
    disk = found.disk
    words = f"{disk.path}: {size(disk.used_bytes)} used, {size(disk.free_bytes)} free"
    if not disk.writable:
        return Check("model cache", Grade.STOPS, f"{words}; it cannot be written")
    little = disk.free_bytes < LEAST_FREE
    words += f"; models want {size(LEAST_FREE)} and more" if little else ""
    return Check("model cache", Grade.WARNING if little else Grade.OK, words)


def _ports(found: Findings) -> Iterator[Check]:
    for port, option in PORTS.items():
        if port in found.taken:
            other = f"choose another with {option} ({ANY}: any that is free)"
            words = f"127.0.0.1:{port} is in use; {other}"
            yield Check("port", Grade.WARNING, words, f"{option} {ANY}")
        else:
            yield Check("port", Grade.OK, f"127.0.0.1:{port} is free")


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def show(checks: Sequence[Check], console: Console) -> None:
    """Print a line for each check, and what they come to."""
    table = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=True)
    table.add_column(style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in checks:
        table.add_row(one.name, Text(one.grade, style=STYLES[one.grade]), Text(one.words))
    console.print(table)
    console.print(verdict(checks), highlight=False)


def verdict(checks: Sequence[Check]) -> str:
    """Return what the checks come to."""
    stopping = [one.name for one in checks if one.grade is Grade.STOPS]
    if stopping:
        return f"No service runs here before this is mended: {', '.join(stopping)}."
    command = " ".join(("outrider serve MODEL", *(one.options for one in checks if one.options)))
    return f"A service runs here: `{command}`."


def as_json(checks: Sequence[Check], found: Findings) -> dict[str, Any]:
    """Return checks and findings as plain values."""
    return {
        "runs": all(one.grade is not Grade.STOPS for one in checks),
        "checks": [{"name": c.name, "grade": str(c.grade), "words": c.words} for c in checks],
        "found": asdict(found),
    }
