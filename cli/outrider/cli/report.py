"""Answers and their figures as people see them: text as it comes, then a compact table.

Computes nothing; the figures are `figures`'.
"""

import sys
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from outrider.cli.figures import AnswerFigures, figures, ratio, same_text
from outrider.cli.prompts import Answer, Screen

WORTH_IT = 1.05
NO_GAIN = (
    "  Drafting gained little here. `outrider profile` says which arrangement suits this machine;\n"
    "  with two processors that is often placement: Colocated.\n"
)
_ROWS: tuple[tuple[str, Callable[[AnswerFigures], str]], ...] = (
    ("tokens", lambda f: str(f.tokens)),
    ("tokens per second", lambda f: _number(f.tokens_per_second, "{:.1f}")),
    ("tokens per verify pass", lambda f: _number(f.tokens_per_pass, "{:.2f}")),
    ("hit rate (first guesses)", lambda f: _number(f.hit_rate, "{:.0%}")),
    ("gain", lambda f: _number(f.gain, "{:.2f}x")),
    ("passes with an offer of the draft", lambda f: _number(f.draft_share, "{:.0%}")),
    ("time to first token", lambda f: f"{f.ttft_seconds * 1000:.0f} ms"),
)


def screen(console: Console, several: bool, compare: bool) -> Screen:
    """Stream text to stdout, under a heading where more than one answer comes."""

    def begin(prompt: str, plain: bool) -> None:
        if several and not plain:
            console.print(f"\n> {prompt}", style="bold", markup=False, highlight=False)
        if compare:
            console.rule("plain decoding" if plain else "with the draft", style="dim", align="left")

    return Screen(begin, _write, lambda: _write("\n"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def summary(console: Console, answers: Sequence[Answer]) -> None:
    """The figures of all answers, beside those of plain decoding if it was asked for."""
    drafted = figures([a.drafted for a in answers])
    plain_results = [a.plain for a in answers if a.plain is not None]
    if not plain_results:
        console.print(_table([("", drafted)]))
        return
    plain = figures(plain_results)
    console.print(_table([("with the draft", drafted), ("plain", plain)]))
    console.print(_verdict(answers, drafted, plain), highlight=False)


def _verdict(answers: Sequence[Answer], drafted: AnswerFigures, plain: AnswerFigures) -> str:
    times = ratio(drafted, plain)
    speed = _number(times, "{:.2f}x the speed of plain decoding")
    text = "the same text" if same_text(answers) else "[bold red]a different text[/]"
    hint = NO_GAIN if times is not None and times < WORTH_IT else ""
    return f"  [bold]{speed}[/], {text}\n{hint}"


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
