"""Who gets what of the memory that a target shares with the draft in its process."""

import pytest

from outrider.worker.errors import ModelError
from outrider.worker.launch.memory_budget import SequenceBytes, SharedMemory

TARGET, DRAFT = SequenceBytes(blocks=4, each=40), SequenceBytes(blocks=5, each=10)


@pytest.mark.parametrize(
    ("kv_bytes", "running", "draft_kv"),
    [
        (1000, 8, 200),  # a token of both takes 50, of which 10
        (1000, 2, 100),  # no more than two sequences can use
        (220, 8, 50),  # no less than one needs
    ],
)
def test_a_draft_gets_kv_for_as_many_tokens_as_its_target(
    kv_bytes: int, running: int, draft_kv: int
) -> None:
    budget = SharedMemory(kv_bytes, running, TARGET, DRAFT)
    assert budget.draft_kv == draft_kv
    assert budget.target_kv(10) + 10 + draft_kv == kv_bytes


def test_a_budget_that_does_not_hold_all_three_is_refused_with_the_numbers() -> None:
    budget = SharedMemory(1000, 2, TARGET, DRAFT)
    assert budget.target_kv(740) == 160
    with pytest.raises(ModelError, match=r"^settings\.kv_bytes: 1000 .*741.*100.*160.*1001"):
        budget.target_kv(741)
