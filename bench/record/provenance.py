"""The line below figures that says what they were measured on: `python -m bench.record.provenance`.

Pages of docs/ name a report of bench/results/ in a pair of comments, `<!-- measured: NAME -->` and
`<!-- /measured -->`; what stands between them is written here from the report.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.record.report import RESULTS

DOCS = Path(__file__).parents[2] / "docs"
LINE = re.compile(r"<!-- measured: (\w+) -->\n(?:.*\n)?<!-- /measured -->")
GONE = {
    "cpu_peers_avx2": "ba2eeaf6",
    "draft_pool": "8f22b843",
    "flowspec_own_real": "288f0517",
    "flowspec_real": "8552a434",
    "host_tree": "90a0341d",
    "link": "f2bc40dd",
    "planning": "4e7c810c",
    "prefill": "90a0341d",
    "prefix": "8494d352",
    "ranks": "ccd8ff0c",
    "simulate": "018faca8",
}
"""Commits with the benchmarks of reports that the present ones cannot repeat."""
SIMULATED = frozenset({"control_loop", "draft_pool", "flowspec", "flowspec_tensor", "nightjar"})
"""Reports whose figures are in virtual time, so that no machine changes them."""


def main() -> None:
    """Rewrite the lines of all pages."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := quoted(before)) != before:
            page.write_text(after, encoding="utf-8")


def pages() -> Iterator[Path]:
    """All pages that may quote a report."""
    yield from sorted(DOCS.rglob("*.md"))


def quoted(page: str) -> str:
    """`page` with its lines rewritten; `FileNotFoundError` for a report that is not there."""

    def written(match: re.Match[str]) -> str:
        name = match[1]
        report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        return f"<!-- measured: {name} -->\n*{origin(name, report)}*\n<!-- /measured -->"

    return LINE.sub(written, page)


def origin(name: str, report: Mapping[str, Any]) -> str:
    """Machine, instruction sets, date and command of a report, as a sentence."""
    date, command = report["date"][:10], f"`{report['command'].strip()}`"
    if name in GONE:
        command += f" of commit {GONE[name]}"
    if name in SIMULATED:
        return f"Simulated, not measured; {date}, {command}."
    return f"Measured on {briefly(report['machine'])}, {date}: {command}."


def briefly(machine: Mapping[str, Any]) -> str:
    """A machine by what changes speeds most; its report has the rest."""
    return f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['flags'])})"


def on(machine: Mapping[str, Any]) -> str:
    """A machine in a few words, its instruction sets in brackets."""
    facts = "{cpu}, {cores} cores, {memory_gib} GiB, {system}".format_map(machine)
    return f"{facts} ({', '.join(machine['flags'])})"


if __name__ == "__main__":
    main()
