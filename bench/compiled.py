"""Every GPU kernel compiled without a GPU: `python -m bench.compiled [MODULE ...]`.

Writes registers, stack and shared memory of each configuration and architecture to
`bench/results/kernels_compiled.json` and `docs/reference/kernels.md`; what is unchanged since is
kept. Exit status 1 if a kernel spills. Says nothing of speed: that is `bench.kernels`'.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import triton
from tools.tables import table

from bench.gpu.kernel_compiler import build, digest
from bench.record.report import RESULTS
from outrider.kernels.gpu.compilation import Compilation, registered

REPORT = RESULTS / "kernels_compiled.json"
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kernels.md"
MOST_STACK = 8
"""Bytes of a thread that may be spilled."""
MOST = ("registers", "stack", "shared")
"""What the page shows the largest of."""
Entry = dict[str, Any]
"""One configuration on one architecture, as the report has it."""
HEAD = """\
<!-- Written by `python -m bench.compiled`; change the kernels instead. -->

# GPU kernels as compiled

The Triton kernels that Llama-3-8B and 70B make at tensor-parallel degrees 1 to 8, compiled by
triton {triton} without a device: the most of all configurations of a module. Registers are a
thread's, shared memory is a block's, stack is what a thread spills: a test fails above {most}
bytes, which are two registers. Where architectures differ, each has its value, in the order of
{architectures}. Every configuration: `bench/results/kernels_compiled.json`. What they do:
[Kernels](../concepts/kernels.md)."""
COLUMNS = ("module", "configurations", "registers", "stack", "shared", "matrix unit")


def main() -> int:
    """Compile what changed, or all; return 1 if something spills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="only these of outrider.kernels.gpu")
    parser.add_argument("--all", action="store_true", help="unchanged kernels too")
    options = parser.parse_args()
    only = set(options.modules)
    old = {} if options.all else known(read())
    kernels = [entry(*one, old) for one in wanted() if not only or one[0] in only]
    if only:
        kept = [one for one in read()["kernels"] if one["module"] not in only]
        kernels = sorted([*kept, *kernels], key=lambda one: str(one["module"]))
    report = {"triton": triton.__version__, "kernels": kernels}
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(report), encoding="utf-8")
    return int(any(one["stack"] > MOST_STACK for one in kernels))


def read() -> Entry:
    """The report as it stands; empty if there is none."""
    if not REPORT.exists():
        return {"triton": triton.__version__, "kernels": []}
    found: Entry = json.loads(REPORT.read_text(encoding="utf-8"))
    return found


def known(report: Entry) -> dict[str, Entry]:
    """Return entries by digest, unless another triton made them."""
    same = report["triton"] == triton.__version__
    return {one["digest"]: one for one in report["kernels"]} if same else {}


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
    takes = {key: old[made_of][key] for key in ("registers", "stack", "shared", "matrix")}
    names = {"module": module, "name": compilation.name, "architecture": architecture}
    launch = {"warps": compilation.warps, "stages": compilation.stages}
    return {**names, "digest": made_of, **launch, **takes}


def page(report: Entry) -> str:
    """The reference page."""
    kernels = report["kernels"]
    names = ", ".join(f"sm_{one}" for one in sorted({one["architecture"] for one in kernels}))
    head = HEAD.format(triton=report["triton"], most=MOST_STACK, architectures=names)
    modules = itertools.groupby(kernels, lambda one: str(one["module"]))
    return f"{head}\n\n{table(COLUMNS, [row(module, [*own]) for module, own in modules])}\n"


def row(module: str, kernels: Sequence[Entry]) -> tuple[str, ...]:
    """One line of the table: a module's most on each architecture."""
    cards = [
        [one for one in kernels if one["architecture"] == card]
        for card in sorted({one["architecture"] for one in kernels})
    ]
    most = ([str(max(one[key] for one in own)) for own in cards] for key in MOST)
    units = [", ".join({one["matrix"] for one in own} - {"none"}) or "none" for own in cards]
    values = (" / ".join(each if len({*each}) > 1 else each[:1]) for each in (*most, units))
    return module, str(len({one["name"] for one in kernels})), *values


if __name__ == "__main__":
    sys.exit(main())
