"""Markdown that grows on a terminal: blocks that are whole stay, the last one is drawn anew.

Lines break between words, and nothing that has scrolled away is drawn a second time.
"""

import re
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments

FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
PICTURES_PER_SECOND = 8
MARGIN = 2
"""Rows of the terminal that the growing block leaves free."""


class GrowingMarkdown:
    """Markdown whose text comes in pieces."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._block = ""
        self._live = Live(
            console=console,
            get_renderable=self._newest,
            refresh_per_second=PICTURES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Print the rest."""
        rest, self._block = self._block, ""
        self._live.stop()
        if rest.strip():
            self._console.print(Markdown(rest))

    def add(self, piece: str) -> None:
        """Take a further piece, and print the blocks that it completes."""
        whole, self._block = split(self._block + piece)
        if whole.strip():
            self._live.console.print(Markdown(whole))
            self._live.console.print()

    def _newest(self) -> Segments:
        """Return the last rows of the growing block, as many as the terminal has room for."""
        rows = self._console.render_lines(Markdown(self._block), pad=False)
        shown = rows[-max(1, self._console.height - MARGIN) :]
        return Segments([part for row in shown for part in (*row, Segment.line())])


def split(text: str) -> tuple[str, str]:
    """Return the blocks of a text that are whole, and the one that may still grow."""
    at = text.rfind("\n\n")
    while at >= 0 and len(FENCE.findall(text[:at])) % 2:  # within a block of code
        at = text.rfind("\n\n", 0, at)
    return (text[:at], text[at + 2 :]) if at >= 0 else ("", text)
