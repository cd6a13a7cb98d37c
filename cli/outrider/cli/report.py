"""Answers and their figures as people see them: text as it comes, then a compact table.

Computes nothing; the figures are `figures`'.
"""

import sys
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.cli.answers import Answers
from outrider.cli.figures import (
    AnswerFigures,
    cut_short,
    draft_is_useless,
    figures,
    lines,
    ratio,
    same_text,
)
from outrider.cli.prompts import Screen

WORTH_IT = 1.05
SLOWER, LITTLE = "Drafting is slower than plain decoding here", "Drafting gained little here"
OTHERWISE = (
    "`outrider profile` runs every arrangement on this machine;\n"
    "  without `placement` in the YAML, run takes the one that it measured as the fastest."
)
CUT = "  Cut before its end, by --max-tokens or the context: {} answers.\n"
USELESS = (
    "  This draft is of no use to its target: next to none of its tokens are accepted.\n"
    "  Take one of the target's family, or distil one (`outrider distil --help`).\n"
)
_ROWS: tuple[tuple[str, Callable[[AnswerFigures], str]], ...] = (
    ("tokens", lambda f: str(f.tokens)),
    ("tokens per second", lambda f: _number(f.tokens_per_second, "{:.1f}")),
    ("tokens per pass", lambda f: _number(f.tokens_per_pass, "{:.2f}")),
    ("hit rate (first guesses)", lambda f: _number(f.hit_rate, "{:.0%}")),
    ("gain", lambda f: _number(f.gain, "{:.2f}x")),
    ("passes with draft tokens", lambda f: _number(f.draft_share, "{:.0%}")),
    ("time to first token", lambda f: f"{f.ttft_seconds * 1000:.0f} ms"),
)


def screen(console: Console, several: bool, heading: str = "") -> Screen:
    """Stream text to stdout, under the prompt where more than one answer comes; `heading` stands
    above all of them."""
    headings = [heading] if heading else []

    def begin(prompt: str) -> None:
        while headings:
            console.rule(headings.pop(), style="dim", align="left")
        if several:
            console.print(f"\n> {prompt}", style="bold", markup=False, highlight=False)

    return Screen(begin, _write, lambda: _write("\n"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def summary(console: Console, found: Answers) -> None:
    """The figures of all answers, beside those of plain decoding if it was asked for."""
    drafted = figures([a.drafted for a in found.answers])
    plain_results = [a.plain for a in found.answers if a.plain is not None]
    if plain_results:
        plain = figures(plain_results)
        console.print(_table([(found.drafted, drafted), (found.plain, plain)]))
        console.print(_arrangements(found))
        console.print(_verdict(found, drafted, plain), highlight=False)
    else:
        console.print(_table([("", drafted)]))
    if count := cut_short(found.answers):
        console.print(CUT.format(f"{count} of {len(found.answers)}"), highlight=False)
    if draft_is_useless(found.answers):
        console.print(USELESS, highlight=False)


def _arrangements(found: Answers) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=True)
    table.add_column("arrangement")
    table.add_column("tokens per second", justify="right")
    table.add_column("over plain", justify="right")
    table.add_column("", style="dim")
    for line in lines(found):
        table.add_row(
            f"[bold]{line.arrangement}[/]" if line.arrangement == found.arrangement
            else line.arrangement,
            _number(line.tokens_per_second, "{:.1f}"),
            _number(line.over_plain, "{:.2f}"),
            "answered above" if line.ran else "expected",
        )  # fmt: skip
    return table


def _verdict(found: Answers, drafted: AnswerFigures, plain: AnswerFigures) -> str:
    times = ratio(drafted, plain)
    speed = _number(times, "{:.2f}x the speed of plain decoding")
    text = "the same text" if same_text(found.answers) else "[bold red]a different text[/]"
    words = f"  [bold]{found.drafted}: {speed}[/], {text}\n"
    if times is None or times >= WORTH_IT or found.arrangement == found.plain:
        return words
    return f"{words}  {SLOWER if times < 1 else LITTLE}. {OTHERWISE}\n"


def _table(columns: Sequence[tuple[str, AnswerFigures]]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_header=len(columns) > 1, header_style="dim", pad_edge=True)
    table.add_column("", style="dim")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for label, show in _ROWS:
        table.add_row(label, *(show(f) for _, f in columns))
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
