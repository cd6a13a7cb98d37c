"""What a draft's runner makes of its model's logits."""

import math

import numpy as np

from outrider.worker.rows import prompt_rows
from outrider.worker.runner import DraftRunner, Rank, Ranked
from outrider.worker.sampling import Sampling
from tests.unit.worker.fakes import HashModel, TokenPool


class Step:
    """One row with output, of which three children are wanted."""

    rank = Rank(
        prompt_rows(np.array([3], np.int32), 0, 0, wants_output=True),
        Sampling(),
        1.0,
        3,
        np.ones(50, np.bool_),
    )


def ranked(share: float) -> Ranked:
    return DraftRunner(HashModel(TokenPool(1, 64)), None, 50, share).run(Step())


def test_estimates_are_lowered_by_the_share_of_tokens_that_the_draft_can_output() -> None:
    whole, part = ranked(1.0), ranked(0.9)
    assert np.array_equal(whole.tokens, part.tokens)
    assert np.allclose(part.logprobs - whole.logprobs, math.log(0.9), atol=1e-6)
