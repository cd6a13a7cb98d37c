"""The figures of a run, from how its requests went, and the tables that show them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.cli.load.exchange import Exchange, Status

COUNTS = (*Status, "prompt_tokens", "completion_tokens", "draft_rows", "accepted_rows")
LATENCIES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "time per output token",
    "latency": "end-to-end latency",
}


def summary(ended: Sequence[Exchange]) -> dict[str, Any]:
    """Sum up in seconds; latencies are those of completed requests, by their percentiles.

    `itl` is the gap before each chunk, which a reader sees; `tpot` the mean time of an answer's
    tokens after the first; `behind_schedule` how late requests were sent.
    """
    counts = Counter(one.status for one in ended)
    completed = [one for one in ended if one.status is Status.COMPLETED]
    duration = max((one.ended for one in ended), default=0.0)
    tokens = sum(one.tokens for one in ended)
    figures = [of_choice for one in ended for of_choice in one.figures]
    return {
        "sent": len(ended),
        **{str(status): counts[status] for status in Status},
        "problems": dict(Counter(one.problem for one in ended if one.problem).most_common()),
        "duration": duration,
        "request_rate": len(completed) / duration if duration else 0.0,
        "token_rate": tokens / duration if duration else 0.0,
        "prompt_tokens": sum(one.usage.get("prompt_tokens", 0) for one in ended),
        "completion_tokens": tokens,
        "tokens_reported": all("completion_tokens" in one.usage for one in completed),
        **{n: sum(one.get(n) or 0 for one in figures) for n in ("draft_rows", "accepted_rows")},
        "ttft": percentiles(one.times[0] - one.sent for one in completed if one.times),
        "itl": percentiles(b - a for one in completed for a, b in pairwise(one.times)),
        "tpot": percentiles(
            (one.times[-1] - one.times[0]) / (one.tokens - 1)
            for one in completed
            if one.times and one.tokens > 1
        ),
        "latency": percentiles(one.ended - one.sent for one in completed),
        "behind_schedule": percentiles(max(0.0, one.sent - one.due) for one in ended),
    }


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Return mean, p50, p90, p99 and number of some figures; None if there are none."""
    known = sorted(values)
    if not known:
        return None
    found = {f"p{n}": known[math.ceil(n * len(known) / 100) - 1] for n in (50, 90, 99)}
    return {"mean": math.fsum(known) / len(known), **found, "n": len(known)}


def compare(ended: Iterable[Exchange]) -> dict[str, Any]:
    """Hold every answer to a prompt against its first whole one; say how many were, which differ.

    Whole answers must be the same, with their ends and counts of tokens; what came of a broken one
    must be its beginning.
    """
    first: dict[int, Exchange] = {}
    for one in ended:
        if one.status is Status.COMPLETED:
            first.setdefault(one.job[0], one)
    compared, differences = 0, []
    for one in ended:
        whole = first.get(one.job[0], one)
        if whole is one or one.status is Status.REJECTED:
            continue
        compared += 1
        if difference := differs(whole, one):
            differences.append(f"prompt {one.job[0]}: {difference}")
    return {"compared": compared, "differences": differences}


def differs(whole: Exchange, other: Exchange) -> str:
    """Return how an answer differs from a whole one; nothing if it does not."""
    complete = other.status is Status.COMPLETED
    for index in sorted(whole.texts.keys() | other.texts.keys()):
        text = other.texts.get(index, "")
        wanted = whole.texts.get(index, "")[: None if complete else len(text)]
        if text != wanted:
            pairs = enumerate(zip_longest(wanted, text))
            at = next(at for at, (a, b) in pairs if a != b)
            shown = f"{wanted[at : at + 40]!r} and {text[at : at + 40]!r}"
            return f"{shown} from character {at} of choice {index} on"
    first, second = ((one.ends, one.usage.get("completion_tokens")) for one in (whole, other))
    return f"ends and tokens {first} and {second}" if complete and first != second else ""


def report(run: Mapping[str, Any]) -> None:
    """Show the figures of a run on stdout."""
    console = Console()
    counts = Table(box=None, show_header=False)
    counts.add_column(style="dim")
    counts.add_column(justify="right")
    for name in COUNTS:
        counts.add_row(name.replace("_", " "), str(run[name]))
    counts.add_row("duration", f"{run['duration']:.1f} s")
    counts.add_row("requests per second", f"{run['request_rate']:.2f}")
    counts.add_row("output tokens per second", f"{run['token_rate']:.1f}")
    latencies = Table("milliseconds", box=SIMPLE_HEAD, header_style="dim")
    for name in ("mean", "p50", "p90", "p99"):
        latencies.add_column(name, justify="right")
    for figure, label in LATENCIES.items():
        shown = list((run[figure] or {}).values())[:4]
        latencies.add_row(label, *(f"{1e3 * value:.1f}" for value in shown))
    console.print(counts, latencies)
    lines = [f"{count} failed: {problem}" for problem, count in run["problems"].items()]
    if not run["tokens_reported"]:
        lines.append("The endpoint reports no usage: each chunk counts as one token.")
    if texts := run.get("texts"):
        wrong = len(texts["differences"]) or "none"
        lines.append(
            f"{texts['compared']} answers compared with the first to a prompt: {wrong} differ."
        )
        lines += texts["differences"][:5]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
