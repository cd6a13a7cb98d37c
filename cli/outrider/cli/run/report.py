"""Answers and their figures as people see them: text as it comes, then a compact table.

Computes nothing; the figures are `figures`'. A comparison has a screen of its own (`comparison`).
"""

import sys
from collections.abc import Callable

from rich.console import Console

from outrider.cli.run.answers import Answers
from outrider.cli.run.figures import AnswerFigures, cut_short, draft_is_useless, figures
from outrider.cli.run.prompts import Screen
from outrider.cli.terminal import tables

CUT = "  Cut before its end, by --max-tokens or the context: {} answers.\n"
USELESS = (
    "  This draft is of no use to its target: next to none of its tokens are accepted.\n"
    "  Take one of the target's family, or distil one (`outrider distil --help`).\n"
)
_ROWS: tuple[tuple[str, Callable[[AnswerFigures], str]], ...] = (
    ("tokens", lambda f: str(f.tokens)),
    ("tokens per second", lambda f: _number(f.tokens_per_second, "{:.1f}")),
    ("tokens per pass", lambda f: _number(f.tokens_per_pass, "{:.2f}")),
    ("acceptance rate", lambda f: _number(f.acceptance_rate, "{:.0%}")),
    ("gain", lambda f: _number(f.gain, "{:.2f}x")),
    ("passes with draft tokens", lambda f: _number(f.draft_share, "{:.0%}")),
    ("time to first token", lambda f: f"{f.ttft_seconds * 1000:.0f} ms"),
)


def screen(console: Console, several: bool) -> Screen:
    """Stream text to stdout, under the prompt where more than one answer comes."""

    def begin(prompt: str) -> None:
        if several:
            console.print(f"\n> {prompt}", style="bold", markup=False, highlight=False)

    return Screen(begin, lambda chunk: _write(chunk.text), lambda: _write("\n"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def summary(console: Console, found: Answers) -> None:
    """Print the figures of all answers, unless a comparison showed them, and what was wrong."""
    if not found.plain:
        one = figures([a.drafted for a in found.answers])
        console.print(tables.figures((label, show(one)) for label, show in _ROWS))
    if count := cut_short(found.answers):
        console.print(CUT.format(f"{count} of {len(found.answers)}"), highlight=False)
    if draft_is_useless(found.answers):
        console.print(USELESS, highlight=False)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
