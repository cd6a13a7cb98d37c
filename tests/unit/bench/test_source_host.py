"""`bench.source_host`: what its texts hold, and what is made of its times."""

import pytest

from bench.source_host import SIDES, Answering, figures, texts


@pytest.mark.parametrize(
    ("name", "found"), [("nothing repeats", False), ("copies its prompt", True)]
)
def test_the_text_is_found_where_it_repeats_alone(name: str, found: bool) -> None:
    side = Answering(texts()[name], SIDES["text"])
    for _ in range(20):
        side.next_root()
    assert (len(side.sequence.mirror) > 0) is found


def test_what_the_source_adds_is_the_difference_of_whole_steps() -> None:
    times = {"without": [(1000, 9000)] * 3, "text": [(5000, 8000)] * 3}
    assert figures([times, times]) == {
        "without, search": 1.0,
        "without, plan": 9.0,
        "text, search": 5.0,
        "text, plan": 8.0,
        "added": 3.0,
    }
