"""The screen of a comparison: each answer once, tokens a second with and without speculation.

Its last lines are both speeds and the verdict. Asking is `comparison`'s.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.run.prompts import Screen
from outrider.client import Chunk

SAME, MORE = 0.95, 1.05
"""Ratios of speed between which neither side is called faster."""
LEAST_TOKENS = 32
"""Tokens of all answers below which a ratio of speeds says nothing."""
PROFILE = "; `outrider profile` measures at length, and placement Auto goes by it from then on"
BAR_COLUMNS = 16
PICTURES_PER_SECOND = 8
DRAFT, TEXT = "the draft", "guesses from the text"
"""What the two sides differ in: a draft, or the sources of a service that has none."""


def reason(tokens_per_pass: float | None, acceptance_rate: float | None) -> str:
    """Return what a draft did."""
    if tokens_per_pass is None or acceptance_rate is None:
        return ""
    return f"{tokens_per_pass:.2f} tokens per pass, acceptance rate {acceptance_rate:.0%}"


def verdict(
    ratio: float | None, tokens: int, same_text: bool, chosen: bool = False, subject: str = DRAFT
) -> str:
    """Return what a comparison found; `ratio`: tokens a second with `subject` by those without;
    `chosen`: Auto took the draft."""
    text = "identical text" if same_text else "DIFFERENT TEXT"
    if ratio is None or tokens < LEAST_TOKENS:
        return f"Too short to compare the speed ({tokens} tokens), {text}"
    if SAME < ratio < MORE:
        return f"As fast with {subject} as without ({ratio:.2f}x), {text}"
    times = f"{ratio:.1f}x faster" if ratio > 1 else f"{1 / ratio:.1f}x slower"
    return f"{times} with {subject}, {text}{PROFILE if chosen and ratio < 1 else ''}"


@dataclass
class ArrangementSpeed:
    """One arrangement's speed so far."""

    label: str
    clock: Callable[[], float]
    tokens: int = 0
    """Tokens after the first of each answer."""
    seconds: float = 0.0
    """Seconds from the first tokens of answers to the last."""
    measured: float | None = None
    """Tokens a second by the server's own clock, once all answers are there."""
    _newest: float | None = None
    """When the tokens before came; None: none of this answer have."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        if self.measured is not None:
            return self.measured
        return self.tokens / self.seconds if self.seconds else 0.0

    def begin(self) -> None:
        """An answer begins."""
        self._newest = None

    def count(self, tokens: int) -> None:
        """Tokens came."""
        now = self.clock()
        if self._newest is not None:
            self.tokens += tokens
            self.seconds += now - self._newest
        self._newest = now


@dataclass
class Comparison:
    """What is on the screen."""

    sides: tuple[ArrangementSpeed, ArrangementSpeed]
    """With speculation and without it."""
    subject: str = DRAFT
    """What they differ in."""
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Prompts and their texts so far."""
    said: str = ""
    """The verdict, once it is known."""
    why: str = ""
    """What speculation did for it, once that is known."""

    @classmethod
    def between(
        cls,
        drafted: str,
        plain: str,
        clock: Callable[[], float] = time.monotonic,
        subject: str = DRAFT,
    ) -> "Comparison":
        """Compare two arrangements, by their names."""
        labels = (f"with {subject} ({drafted})", f"without ({plain})")
        first, second = (ArrangementSpeed(label, clock) for label in labels)
        return cls((first, second), subject)

    def screen(self, drafted: bool, shown: bool) -> Screen:
        """Return where the answers of one side go; only those that are `shown` are seen."""
        side = self.sides[0 if drafted else 1]

        def begin(prompt: str) -> None:
            side.begin()
            if shown:
                self.answers.append((prompt, ""))

        def chunk(chunk: Chunk) -> None:
            side.count(len(chunk.token_ids))
            if shown:
                prompt, text = self.answers[-1]
                self.answers[-1] = (prompt, text + chunk.text)

        return Screen(begin, chunk, lambda: None)

    @contextmanager
    def on(self, console: Console) -> Iterator[None]:
        """Show it while it grows, and leave it there."""
        with Live(
            get_renderable=self._rendered,
            console=console,
            refresh_per_second=PICTURES_PER_SECOND,
        ):
            yield

    def _rendered(self) -> Group:
        heading = Text(f"The same questions with {self.subject} and without, in turns", "bold")
        speeds: list[Text | Table] = [heading, Text(), self._bars(), Text(self.why, "dim")]
        answers: list[Text | Table] = []
        for prompt, text in self.answers:
            first, *more = prompt.strip().splitlines() or [""]
            answers += [Text(f"> {first}{' …' if more else ''}", "bold"), Text(text.strip())]
        # At the end speeds stand last: the answers may be longer than the screen.
        said = [Text(), *speeds, Text(self.said, "bold")]
        parts = [*answers, *said] if self.said else [*speeds, *answers]
        return Group(*parts, Text())  # `Live` ends the last line on terminals only

    def _bars(self) -> Table:
        table = Table.grid(padding=(0, 2))
        most = max(side.rate for side in self.sides)
        for side in self.sides:
            bar = ProgressBar(total=most or 1.0, completed=side.rate, width=BAR_COLUMNS)
            table.add_row(side.label, bar, f"{side.rate:.1f} tokens/s" if side.rate else "")
        return table
