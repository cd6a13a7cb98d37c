"""Pauses between tries to reach a draft."""

from itertools import pairwise

from outrider.worker.link.client import (
    FIRST_SECONDS,
    LAST_SECONDS,
    REFUSED_SECONDS,
    next_pause,
)


def pauses(count: int, last: float = 0.0) -> list[float]:
    found = []
    for _ in range(count):
        last = next_pause(last, refused=False)
        found.append(last)
    return found


def test_pauses_grow_up_to_half_a_second() -> None:
    found = pauses(10)
    assert found[0] == FIRST_SECONDS
    assert all(before <= after <= 2 * before for before, after in pairwise(found))
    assert found[-1] == LAST_SECONDS
    assert LAST_SECONDS <= 0.5, "a draft that returns is to be used within a second"


def test_a_refusal_does_not_lengthen_later_pauses() -> None:
    refused = next_pause(pauses(3)[-1], refused=True)
    assert refused == REFUSED_SECONDS
    assert pauses(3, refused) == pauses(3)
