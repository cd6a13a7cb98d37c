"""The measured figures written into their page: `python -m bench.quote`.

Reads `bench/results/speculation.json` for the ratios, `processors.json`, `peers.json` and
`pairs.json` for the tables; measuring is left to the benchmarks of these names.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import pairs, peers, processors
from bench.record import provenance
from bench.record.report import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
REPORT = RESULTS / "speculation.json"
BEGIN, END = "<!-- ratios -->", "<!-- /ratios -->"
PROCESSORS = ("<!-- processors -->", "<!-- /processors -->")
PEERS = ("<!-- peers -->", "<!-- /peers -->")
PAIRS = ("<!-- pairs -->", "<!-- /pairs -->")
SIDES = {
    "Separate_vs_plain": ("Separate over plain decoding", "Separate", ""),
    "Colocated_vs_plain": ("Colocated over plain decoding", "Colocated", ""),
    "Separate_vs_Colocated": ("Separate over Colocated", "Separate", "Colocated"),
}
"""Words for each ratio and the two sides that it compares; "" is the plain one."""
UNMEASURED = """\
Not measured yet: `make bench` measures, and `uv run python -m bench.quote` puts the ratios here."""
MEASURED = """\
Tokens per second of one over the other, geometric mean over chat prompts, greedy and at temperature
0.8. Measured on {cpu} ({flags}), {cores} processors, {memory_gib} GiB, {system}, on {date};
`make bench` repeats it.

| | ratio |
|---|---|
{rows}"""
OVERLAP = (
    "\n\n\\* In at least one mode the ranges of the repetitions overlap: no difference is claimed."
)


def main() -> None:
    """Rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--processors", type=Path, default=processors.OUT)
    parser.add_argument("--peers", type=Path, default=RESULTS / "peers.json")
    parser.add_argument("--pairs", type=Path, default=RESULTS / "pairs.json")
    options = parser.parse_args()
    before = options.page.read_text(encoding="utf-8")
    after = quote(before, read(options.report))
    after = between(after, PROCESSORS, processors.table(processors.known(options.processors)))
    for markers, name, table in (
        (PEERS, "peers", peers.markdown),
        (PAIRS, "pairs", pairs.markdown),
    ):
        after = between(after, markers, with_origin(name, read(getattr(options, name)), table))
    options.page.write_text(after, encoding="utf-8")


def read(path: Path) -> Mapping[str, Any] | None:
    """The report; None if nothing was measured yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def quote(page: str, report: Mapping[str, Any] | None) -> str:
    """`page` with its ratios rewritten; `ValueError` without markers."""
    return between(page, (BEGIN, END), UNMEASURED if report is None else measured(report))


def with_origin(
    name: str, report: Mapping[str, Any] | None, table: Callable[[Mapping[str, Any]], str]
) -> str:
    """The tables of one report, and where it was measured."""
    if report is None:
        return f"Not measured yet: `python -m bench.{name}`."
    return f"{table(report['results'])}\n\n{provenance.origin(name, report)}"


def between(page: str, markers: tuple[str, str], words: str) -> str:
    """`page` with the part between two markers rewritten; `ValueError` without markers."""
    head, begin, rest = page.partition(markers[0])
    _, end, tail = rest.partition(markers[1])
    if not (begin and end):
        raise ValueError(f"the page lacks {markers[0]} and, behind it, {markers[1]}")
    return f"{head}{begin}\n{words}\n{end}{tail}"


def measured(report: Mapping[str, Any]) -> str:
    """The sentence and the table of one report."""
    marks = {
        name: "" if differ(report["results"], *pair[1:]) else " \\*" for name, pair in SIDES.items()
    }
    rows = [
        f"| {words[0]} | {report['ratios'][name]:.2f} x{marks[name]} |"
        for name, words in SIDES.items()
    ]
    facts = {key: report["machine"][key] for key in ("cpu", "cores", "memory_gib", "system")}
    facts["flags"] = ", ".join(report["machine"]["flags"])
    text = MEASURED.format(**facts, date=report["date"][:10], rows="\n".join(rows))
    return text + (OVERLAP if any(marks.values()) else "")


def differ(results: Mapping[str, Any], one: str, other: str) -> bool:
    """True if the ranges of two sides are apart in every mode; "" names the plain side."""
    names = [name or results["plain_side"] for name in (one, other)]
    by_mode = (
        [mode["sides"][n]["tokens_per_second"] for n in names] for mode in results["modes"].values()
    )
    return all(a["low"] > b["high"] or b["low"] > a["high"] for a, b in by_mode)


if __name__ == "__main__":
    main()
