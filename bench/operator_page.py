"""The figures of `bench.operator` written into their page of the docs, which quotes nothing else.

Pure but for `rewrite`; leaves measuring to `operator`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "concepts" / "operator-scale.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
SENTENCE = """\
{services} services on {cpu}, {cores} cores ({flags}), {system}, on {date}, commit {commit};
load average when it began: {load}."""
ROWS = {
    "from the first creation until all are ready": "{all_ready_seconds:.0f} s",
    "until all are linked; until all have settled": (
        "{all_linked_seconds:.0f} s; {all_settled_seconds:.0f} s"
    ),
    "median and 99th percentile of a pass during creation": (
        "{creation_pass_p50_seconds} s, {creation_pass_p99_seconds} s"
    ),
    "the same at rest": "{rest_pass_p50_seconds} s, {rest_pass_p99_seconds} s",
    "the same under churn": "{churn_pass_p50_seconds} s, {churn_pass_p99_seconds} s",
    "from an edit to its being in force: median, longest": (
        "{edit_p50_seconds:.2f} s, {edit_longest_seconds:.2f} s"
    ),
    "the same while the workers of {hung_services:.0f} services answer nothing": (
        "{hung_edit_p50_seconds:.2f} s, {hung_edit_longest_seconds:.2f} s"
    ),
    "requests at rest for each service and minute, as the operator counts": (
        "{rest_requests_per_service_and_minute:.2f}"
    ),
    "the same as the API server counts, watches included": "{rest_requests_seen_by_api_server:.2f}",
    "passes a minute at rest, under churn": (
        "{rest_passes_per_minute:.0f}, {churn_passes_per_minute:.0f}"
    ),
    "share of one processor at rest, under churn": "{rest_cpu_share:.0%}, {churn_cpu_share:.0%}",
    "resident memory without services, largest": (
        "{empty_rss_mib:.0f} MiB, {largest_rss_mib:.0f} MiB"
    ),
}
"""Words for each row and how its ratios are written; a pass is said as the edge of its bucket."""


class _Beyond(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "more than 30"


def rewrite(report: Path, page: Path = PAGE) -> None:
    """Put the figures of a report into the page."""
    found = json.loads(report.read_text(encoding="utf-8"))
    page.write_text(quoted(page.read_text(encoding="utf-8"), found), encoding="utf-8")


def quoted(page: str, report: Mapping[str, Any]) -> str:
    """`page` with the part between the markers rewritten; `ValueError` without markers."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} and, behind it, {END}")
    return f"{head}{BEGIN}\n{figures(report)}\n{END}{tail}"


def figures(report: Mapping[str, Any]) -> str:
    """The sentence and the table of one report."""
    facts = {key: report["machine"][key] for key in ("cpu", "cores", "system")}
    facts["flags"] = ", ".join(report["machine"]["flags"])
    facts |= {key: report["results"][key] for key in ("services", "commit")}
    sentence = SENTENCE.format(**facts, date=report["date"][:10], load=report["load_average"][0])
    ratios = _Beyond(report["ratios"])
    rows = (
        f"| {words.format_map(ratios)} | {form.format_map(ratios)} |"
        for words, form in ROWS.items()
        if "hung" not in form or "hung_services" in ratios  # older reports have no such phase
    )
    return "\n".join((sentence, "", "| | |", "|---|---|", *rows))
