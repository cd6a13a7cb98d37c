"""Goodput against the best fixed number of draft tokens, in recorded and made-up environments."""

from collections.abc import Callable

import pytest

from outrider.worker.speculation.planner import MANY
from tests.pairwise import pairwise
from tests.unit.worker.speculation.environments import Environment, Goodput, cliff, drive, recorded


@pytest.mark.parametrize(
    ("acceptance", "sequences", "seconds"),
    pairwise(acceptance=[0.0, 0.5, 0.8, 0.95], sequences=[1, 4, MANY], seconds=[recorded, cliff]),
)
def test_it_is_within_three_percent_of_the_best_fixed_number(
    acceptance: float, sequences: int, seconds: Callable[[int], float]
) -> None:
    environment = Environment(lambda _: acceptance, seconds)
    run = drive(Goodput(environment.rate(sequences, 0)), environment, sequences, 400)
    assert run.regret < 0.03


def test_it_follows_a_pair_that_changes_all_the_time() -> None:
    environment = Environment(lambda step: 0.9 if step // 50 % 2 else 0.1, recorded)
    run = drive(Goodput(environment.rate(2, 0)), environment, 2, 2000)
    assert run.regret < 0.05
