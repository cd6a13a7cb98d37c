"""Goodput against the best fixed number of draft tokens, in recorded and made-up environments."""

import pytest

from outrider.worker.speculation.planner import Goodput
from tests.unit.worker.speculation.environments import Environment, cliff, drive, recorded


@pytest.mark.parametrize(
    ("seconds", "sequences", "acceptance"),
    [
        (recorded, 1, 0.5),
        (recorded, 2, 0.0),
        (recorded, 4, 0.95),
        (recorded, 8, 0.2),
        (recorded, 16, 0.8),
        (recorded, 32, 0.5),
        (cliff, 1, 0.95),
        (cliff, 2, 0.8),
        (cliff, 4, 0.5),
        (cliff, 8, 0.0),
        (cliff, 16, 0.2),
        (cliff, 32, 0.8),
    ],
)
def test_it_is_within_three_percent_of_the_best_fixed_number(
    seconds: type, sequences: int, acceptance: float
) -> None:
    run = drive(Goodput(1.0), Environment(lambda _: acceptance, seconds), sequences, 400)
    assert run.regret < 0.03


def test_it_follows_a_pair_that_changes_all_the_time() -> None:
    environment = Environment(lambda step: 0.9 if step // 50 % 2 else 0.1, recorded)
    run = drive(Goodput(1.0), environment, 2, 2000)
    assert run.regret < 0.05
