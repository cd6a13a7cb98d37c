"""Limits on the lines of a text: indentation, and time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.api.line_limits import LineLimits
from outrider.worker.api.text import StopStrings


def shown(pieces: list[str], indent: int = 0, stop: str = "") -> tuple[str, str | None]:
    """What is shown of a text that comes in pieces, and what has ended it."""
    stops = StopStrings((stop,) if stop else ())
    limits, text = LineLimits(stops, indent, None), ""
    for piece in pieces:
        more, ended = limits.push(piece)
        text += more
        if ended:
            return text, limits.word
    return text + limits.finish(), limits.word


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a", ("a", None)),
        ("a\n    b\n\t\t\t\tc\n", ("a\n    b\n\t\t\t\tc\n", None)),
        ("a\n   b", ("a", "")),
        ("a\n    b\nc\n    d", ("a\n    b", "")),
        ("a\n\n    b", ("a", "")),
        ("a\n    \n    b", ("a\n    \n    b", None)),
        ("a\n  ", ("a\n  ", None)),
    ],
)
def test_a_text_ends_before_a_line_that_is_indented_too_little(
    text: str, result: tuple[str, str | None]
) -> None:
    assert shown([text], indent=4) == result
    assert shown(list(text), indent=4) == result


@given(
    pieces=st.lists(st.text("a \n\t;"), max_size=12),
    indent=st.integers(0, 3),
    stop=st.sampled_from(["", ";", "a;"]),
)
def test_cuts_do_not_matter_to_limits_on_lines(pieces: list[str], indent: int, stop: str) -> None:
    assert shown(pieces, indent, stop) == shown(["".join(pieces)], indent, stop)


@pytest.mark.parametrize("indent", [0, 2])
def test_a_stop_string_ends_a_text_first_where_it_comes_first(indent: int) -> None:
    assert shown(["a\n  ", ";\nb"], indent, ";") == ("a\n  ", ";")


def test_a_line_is_the_last_once_the_time_is_over() -> None:
    seconds = 0.0
    limits = LineLimits(StopStrings(()), 0, 1.0, clock=lambda: seconds)
    assert limits.push("a") == ("a", False)
    seconds = 0.5
    assert limits.push("b\nc") == ("b\nc", False)
    seconds = 1.5
    assert limits.push("d") == ("d", False)
    assert limits.push("e\nf\n") == ("e", True)
    assert limits.word == ""
