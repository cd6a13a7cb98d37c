"""What is typed in a chat: a line is a message, and so are lines between triple quotes."""

from collections.abc import Callable

import pytest

from outrider.cli.chat.session import FURTHER, PROMPT, messages


def reader(lines: list[str], prompts: list[str]) -> Callable[[str], str]:
    """Read these lines, and note the prompts before them."""
    left = iter(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return read


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["one", "", "two"], ["one", "", "two"]),
        (['"""one', "", 'two"""', "three"], ["one\n\ntwo", "three"]),
        (['"""', "one", '"""', "two"], ["one", "two"]),
        (['"""one"""', "two"], ["one", "two"]),
        (['say """'], ['say """']),
        (['"""one', "two"], ["one\ntwo"]),
        ([], []),
    ],
)
def test_lines_between_triple_quotes_are_one_message(lines: list[str], found: list[str]) -> None:
    assert list(messages(reader(lines, []))) == found


def test_the_prompt_says_that_a_message_goes_on() -> None:
    prompts: list[str] = []
    assert list(messages(reader(['"""one', 'two"""', "three"], prompts))) == ["one\ntwo", "three"]
    assert prompts == [PROMPT, FURTHER, PROMPT, PROMPT]
