"""What `outrider distil` says while it goes on."""

import pytest

from outrider.cli.terminal.amounts import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(10, "under a minute"), (90, "2 min"), (3600, "60 min"), (9000, "2 h"), (90000, "25 h")],
)
def test_durations_are_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words
