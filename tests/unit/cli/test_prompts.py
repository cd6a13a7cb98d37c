"""Prompts from the command line and from standard input."""

import io

import pytest

from outrider.cli.failures import BadInput
from outrider.cli.run.prompts import with_stdin


def test_a_dash_is_standard_input_without_its_last_newline() -> None:
    assert with_stdin(["a", "-"], io.BytesIO(b"Why?\n\nBlue.\n")) == ["a", "Why?\n\nBlue."]
    assert with_stdin(["-"], io.BytesIO("ä".encode())) == ["ä"]


def test_standard_input_is_left_alone_where_nobody_asks_for_it() -> None:
    stdin = io.BytesIO(b"text")
    assert with_stdin(["a", "--"], stdin) == ["a", "--"]
    assert stdin.read() == b"text"


@pytest.mark.parametrize(
    ("prompts", "stdin", "words"),
    [
        (["-", "-"], b"text", "'-' is there 2 times; allowed: once"),
        (["-"], b"\n", "standard input: no text"),
        (["-"], b"\xff", "standard input: not UTF-8 text"),
    ],
)
def test_input_that_is_no_prompt_is_refused(prompts: list[str], stdin: bytes, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        with_stdin(prompts, io.BytesIO(stdin))
    assert str(refusal.value) == words
