"""Pauses between tries to reach a draft."""

from itertools import pairwise

from outrider.worker.link.retries import (
    FIRST_SECONDS,
    LAST_SECONDS,
    REFUSED_SECONDS,
    Retries,
)


def pauses(retries: Retries, count: int) -> list[float]:
    return [retries.pause(refused=False) for _ in range(count)]


def test_pauses_grow_up_to_half_a_second() -> None:
    found = pauses(Retries(), 10)
    assert found[0] == FIRST_SECONDS
    assert all(before <= after <= 2 * before for before, after in pairwise(found))
    assert found[-1] == LAST_SECONDS
    assert LAST_SECONDS <= 0.5, "a draft that returns is to be used within a second"


def test_a_refusal_does_not_lengthen_later_pauses() -> None:
    retries = Retries()
    pauses(retries, 3)
    assert retries.pause(refused=True) == REFUSED_SECONDS
    assert pauses(retries, 3) == pauses(Retries(), 3)
