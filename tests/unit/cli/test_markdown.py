"""Markdown that grows on a terminal: whole words, each block once."""

import io

import pytest
from rich.console import Console

from outrider.cli.terminal.markdown import GrowingMarkdown, split

TEXT = """\
A **first** paragraph that is longer than forty columns are wide.

```python
def add(a, b):

    return a + b
```

- one
- two"""


def console(height: int = 24) -> Console:
    return Console(file=io.StringIO(), width=40, height=height, force_terminal=True, _environ={})


def printed(console: Console) -> str:
    """All that was written, without colours."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in text.split("\x1b[")[1:]:
        text = text.replace(f"\x1b[{part[: part.index(next(filter(str.isalpha, part))) + 1]}", "")
    return text


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_each_block_is_printed_once_whatever_the_pieces(size: int) -> None:
    shown = console()
    with GrowingMarkdown(shown) as growing:
        growing._live.auto_refresh = False
        growing._live.stop()  # no pictures in between: only what stays
        for at in range(0, len(TEXT), size):
            growing.add(TEXT[at : at + size])
    text = printed(shown)
    assert "**" not in text
    assert "```" not in text
    for words in ("A first paragraph that is longer than", "def add(a, b):", "return", " • two"):
        assert text.count(words) == 1, words


def test_a_block_that_is_higher_than_the_terminal_shows_its_last_rows() -> None:
    shown = console(height=8)
    growing = GrowingMarkdown(shown)
    growing.add("\n".join(f"{number}. item" for number in range(1, 30)))
    rows = "".join(part.text for part in growing._newest().segments).splitlines()
    assert len(rows) == 6
    assert "29" in rows[-1]


@pytest.mark.parametrize(
    ("text", "whole", "rest"),
    [
        ("one", "", "one"),
        ("one\n\ntwo", "one", "two"),
        ("one\n\n```\na\n\nb", "one", "```\na\n\nb"),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```", "c"),
        ("```\na\n\nb", "", "```\na\n\nb"),
    ],
)
def test_a_block_is_whole_at_a_blank_line_outside_of_code(text: str, whole: str, rest: str) -> None:
    assert split(text) == (whole, rest)
