"""Bytes and seconds in words."""

from collections.abc import Iterator

import pytest

from outrider.cli.terminal.amounts import Pace, size


def pace(in_bytes: bool, *seconds: float) -> Pace:
    """A pace at a clock that shows these seconds."""
    shown: Iterator[float] = iter(seconds)
    return Pace(in_bytes, lambda: next(shown))


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "-"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000, "2.5 MB"), (40 * 10**9, "40.0 GB")],
)
def test_bytes_are_said_in_their_unit(count: int, words: str) -> None:
    assert size(count) == words


def test_a_pace_says_bytes_their_rate_and_the_time_left() -> None:
    download = pace(True, 100.0, 110.0)
    assert download.words(0, 4 * 10**9) == ""
    assert download.words(10**9, 4 * 10**9) == "25 %, 1.0 GB of 4.0 GB, 100.0 MB/s, 30 s left"


def test_what_was_there_before_is_no_part_of_the_rate() -> None:
    download = pace(True, 100.0, 110.0)
    assert download.words(2 * 10**9, 4 * 10**9) == "50 %, 2.0 GB of 4.0 GB"
    words = "75 %, 3.0 GB of 4.0 GB, 100.0 MB/s, 10 s left"
    assert download.words(3 * 10**9, 4 * 10**9) == words


def test_a_stage_of_other_parts_says_no_bytes() -> None:
    stage = pace(False, 0.0, 90.0, 91.0)
    stage.words(0, 4)
    assert stage.words(1, 4) == "25 %, 4 min left"
    assert stage.words(4, 4) == "100 %"
