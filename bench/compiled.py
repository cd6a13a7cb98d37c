"""Every GPU kernel compiled without a GPU: `python -m bench.compiled [MODULE ...]`.

Writes registers, stack and shared memory of each configuration and architecture, as the installed
triton compiles it, to `bench/results/kernels_compiled.json` and `docs/reference/kernels.md`; what
is unchanged since is kept. Exit status 1 if a kernel spills more than it may. Says nothing of
speed: that is `bench.kernels`'.

By the oldest triton that works: `uv run --with triton==3.6.0 python -m bench.compiled`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import triton
from tools.tables import table

from bench.gpu.kernel_compiler import Machine, build, digest
from bench.record.report import RESULTS
from outrider.kernels.gpu.compilation import Compilation, registered

REPORT = RESULTS / "kernels_compiled.json"
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kernels.md"
TRITONS = ("3.6.0", "3.9.0")
"""Versions of triton that the report is of: the oldest that works, and the project's own."""
MOST_STACK = {"attention": 40}
"""Bytes of a thread that may be spilled in modules that may spill more than `FEW`."""
FEW = 8
"""Bytes of a thread, two registers, that any other module may spill."""
Entry = dict[str, Any]
"""One configuration on one architecture, as the report has it."""
Report = dict[str, list[Entry]]
"""Entries by version of triton."""
HEAD = """\
<!-- Written by `python -m bench.compiled`; change the kernels instead. -->

# GPU kernels as compiled

The Triton kernels that Llama-3-8B and 70B make at tensor-parallel degrees 1 to 8, and attention of
other models' heads, compiled without a device by the oldest triton that works and the project's
own, for {architectures}: the most of all configurations of a module. Registers are a
thread's, shared memory is a block's. A test fails where a thread spills more than {few} bytes,
in attention {most}. Every configuration, with the instructions of its longest loop of products:
`bench/results/kernels_compiled.json`. What they do: [Kernels](../concepts/kernels.md)."""


def main() -> int:
    """Compile what changed, or all; return 1 if something spills more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="only these of outrider.kernels.gpu")
    parser.add_argument("--all", action="store_true", help="unchanged kernels too")
    options = parser.parse_args()
    if triton.__version__ not in TRITONS:
        parser.error(f"triton {triton.__version__}: the report is of {' and '.join(TRITONS)}")
    only = set(options.modules)
    report = read()
    before = report.get(triton.__version__, [])
    old = {} if options.all else {one["digest"]: one for one in before}
    kernels = [entry(*one, old) for one in wanted() if not only or one[0] in only]
    if only:
        kept = [one for one in before if one["module"] not in only]
        kernels = sorted([*kept, *kernels], key=lambda one: str(one["module"]))
    report |= {triton.__version__: kernels}
    report = {version: report[version] for version in TRITONS if version in report}
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(report), encoding="utf-8")
    return int(any(spilling(kernels)))


def spilling(kernels: Sequence[Entry]) -> Iterator[Entry]:
    """Yield what spills more than it may."""
    return (one for one in kernels if one["stack"] > MOST_STACK.get(one["module"], FEW))


def read() -> Report:
    """The report as it stands; empty if there is none."""
    found: Report = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    return found


def wanted() -> Iterator[tuple[str, Compilation, int]]:
    """Module, configuration and architecture of everything that is to be compiled."""
    for module, compilation in registered():
        for architecture in compilation.architectures:
            yield module, compilation, architecture


def entry(module: str, compilation: Compilation, architecture: int, old: dict[str, Entry]) -> Entry:
    """One line of the report, from `old` if nothing changed."""
    made_of = digest(compilation, architecture)
    if made_of not in old:
        print(f"{module} {compilation.name} sm_{architecture}", file=sys.stderr)
        old = {made_of: asdict(build(compilation, architecture))}
    takes = {one.name: old[made_of][one.name] for one in fields(Machine)}
    names = {"module": module, "name": compilation.name, "architecture": architecture}
    launch = {"warps": compilation.warps, "stages": compilation.stages}
    return {**names, "digest": made_of, **launch, **takes}


def page(report: Report) -> str:
    """The reference page."""
    newest = [*report.values()][-1]
    names = ", ".join(f"sm_{one}" for one in sorted({one["architecture"] for one in newest}))
    columns = ("module", "configurations", *(f"registers, {version}" for version in report))
    modules = dict.fromkeys(one["module"] for one in newest)
    lines = [row(module, report) for module in modules]
    parts = (
        HEAD.format(architectures=names, few=FEW, most=MOST_STACK["attention"]),
        table((*columns, "shared memory", "matrix unit"), lines),
        f"What a thread spills, in bytes: {spills(report)}.",
    )
    return "\n\n".join(parts) + "\n"


def row(module: str, report: Report) -> tuple[str, ...]:
    """One line of the table."""
    own = {version: _of(module, kernels) for version, kernels in report.items()}
    registers = (
        str(max((one["registers"] for one in kernels), default="")) for kernels in own.values()
    )
    shared = max(one["shared"] for kernels in own.values() for one in kernels)
    newest = [*own.values()][-1]
    units = dict.fromkeys(one["matrix"] for one in newest if one["matrix"] != "none")
    configurations = len({one["name"] for one in newest})
    return module, str(configurations), *registers, str(shared), ", ".join(units) or "none"


def _of(module: str, kernels: Sequence[Entry]) -> list[Entry]:
    return [one for one in kernels if one["module"] == module]


def spills(report: Report) -> str:
    """The configurations that spill, in words."""
    return "; ".join(
        f"triton {version}, {_spills(of) or 'nothing'}" for version, of in report.items()
    )


def _spills(kernels: Sequence[Entry]) -> str:
    found: dict[str, dict[str, list[str]]] = {}
    for one in kernels:
        if one["stack"]:
            where = f"{one['stack']} on sm_{one['architecture']}"
            found.setdefault(one["module"], {}).setdefault(one["name"], []).append(where)
    return "; ".join(
        f"{module}: " + ", ".join(f"{name} ({', '.join(where)})" for name, where in of.items())
        for module, of in found.items()
    )


if __name__ == "__main__":
    sys.exit(main())
