"""A run as people see it: progress on stderr, and its figures as tables at the end.

Computes nothing; the figures are `summary`'s.
"""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from outrider.cli.load.drive import Load
from outrider.cli.load.outcome import Status
from outrider.cli.load.percentiles import Spread
from outrider.cli.load.summary import Summary

REDRAW = 0.25
"""Seconds between two states of the bar."""
REPEAT = 10.0
"""Seconds between two lines where there is no terminal."""
LATE = 0.05
"""Seconds behind schedule from which on this tool is said to be the bottleneck."""
MAX_SHOWN = 5


async def live(load: Load) -> None:
    """Show the progress of the run until it is cancelled."""
    tally = Tally()
    if not sys.stderr.isatty():
        while True:
            await asyncio.sleep(REPEAT)
            print(f"{load.clock():.0f} s: {tally.state(load)}", file=sys.stderr, flush=True)
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("load", total=1.0, now="")
        while True:
            bar.update(task, completed=share_done(load), now=tally.state(load))
            await asyncio.sleep(REDRAW)


def share_done(load: Load) -> float:
    """Share of the run that is over, 0 to 1."""
    requests, seconds = load.extent.requests, load.extent.seconds
    by_count = len(load.outcomes) / requests if requests else 0.0
    return min(1.0, max(by_count, load.clock() / seconds if seconds else 0.0))


@dataclass(slots=True)
class Tally:
    """Ended requests so far, each counted once: a long run has many."""

    seen: int = 0
    tokens: int = 0
    counts: Counter[Status] = field(default_factory=Counter)

    def state(self, load: Load) -> str:
        """The run so far in one line."""
        for one in load.outcomes[self.seen :]:
            self.counts[one.status] += 1
            self.tokens += one.answer.tokens
        self.seen = len(load.outcomes)
        tokens = self.tokens + sum(len(one.answer.chunks) for one in load.running)
        parts = [f"{len(load.running)} running", f"{self.counts[Status.COMPLETED]} completed"]
        others = (Status.CANCELLED, Status.REJECTED, Status.FAILED)
        parts += [f"{self.counts[status]} {status}" for status in others if self.counts[status]]
        return ", ".join([*parts, f"{tokens / max(load.clock(), 1e-9):.1f} tokens/s"])


def report(console: Console, run: Summary) -> None:
    """All figures of a run."""
    console.print(_counts(run))
    console.print(_latencies(run))
    for line in _notes(run):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _counts(run: Summary) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name in ("completed", "cancelled", "rejected", "failed", "interrupted", "retries"):
        count = getattr(run, name)
        if count or name in ("completed", "cancelled", "rejected", "failed"):
            table.add_row(f"{name}{' (429)' * (name == 'rejected')}", str(count))
    table.add_row("duration", f"{run.duration:.1f} s")
    table.add_row("requests per second", f"{run.request_rate:.2f}")
    table.add_row("output tokens per second", f"{run.token_rate:.1f}")
    table.add_row("prompt tokens", _count(run.prompt_tokens))
    table.add_row("output tokens", _count(run.completion_tokens))
    if run.accepted_prediction_tokens is not None or run.rejected_prediction_tokens is not None:
        table.add_row("accepted prediction tokens", _count(run.accepted_prediction_tokens))
        table.add_row("rejected prediction tokens", _count(run.rejected_prediction_tokens))
    if run.goodput is not None:
        table.add_row("goodput (met every --slo)", f"{run.goodput:.1%}")
    return table


def _latencies(run: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=True)
    table.add_column("milliseconds", style="dim")
    for name in ("mean", "p50", "p90", "p99"):
        table.add_column(name, justify="right")
    for name, figure in (
        ("time to first token", run.ttft),
        ("inter-token latency", run.inter_token),
        ("gap between chunks", run.chunk_gap),
        ("time per output token", run.tpot),
        ("end-to-end latency", run.latency),
    ):
        table.add_row(name, *_spread(figure))
    return table


def _notes(run: Summary) -> list[str]:
    """Yield sentences on what a reader should know before trusting the figures."""
    notes = [f"{count} failed: {problem}" for problem, count in run.problems.items()][:MAX_SHOWN]
    if not run.tokens_reported:
        notes.append("The endpoint reports no usage: each chunk counts as one token.")
    if run.behind_schedule is not None and run.behind_schedule.p99 > LATE:
        late = run.behind_schedule.p99 * 1000
        notes.append(f"Requests were sent up to {late:.0f} ms late (p99): this side was too slow.")
    return notes + _texts(run) + _memory(run)


def _texts(run: Summary) -> list[str]:
    if run.texts is None:
        return []
    found = run.texts
    if not found.compared:
        asked = f"{found.pairs} (prompt, seed) pairs were answered, none of them twice"
        return [f"No answers were compared: {asked}; --check-pairs asks fewer."]
    wrong = len(found.differences)
    line = f"{found.compared} answers compared with the first of {found.pairs} (prompt, seed) pairs"
    return [f"{line}: {wrong or 'none'} differ."] + [
        f"  pair {one.pair}, seed {one.seed}, temperature {one.temperature:g}: "
        f"{one.expected!r} and {one.found!r} from character {one.at} on"
        for one in found.differences[:MAX_SHOWN]
    ]


def _memory(run: Summary) -> list[str]:
    return [
        f"process {one.pid}: {one.first_mib:.0f} MiB in the first fifth of the run, "
        f"{one.last_mib:.0f} MiB in the last ({one.percent:+.1f} %)"
        f"{', ended during the run' * one.ended}"
        for one in run.memory
    ]


def _spread(figure: Spread | None) -> list[str]:
    if figure is None:
        return ["-"] * 4
    return [f"{x * 1000:.1f}" for x in (figure.mean, figure.p50, figure.p90, figure.p99)]


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
