"""Where a draft goes on with a target's answers."""

import numpy as np

from outrider.distil.guesses import Continuations
from outrider.distil.shards import ANSWERED, ASKED, Chat

PROMPT, ANSWER = 20, 60


def test_a_draft_goes_on_from_every_point_of_an_answer_and_from_none_of_its_prompt() -> None:
    tokens = np.arange(PROMPT + ANSWER, dtype=np.int32)
    writers = np.array([ASKED] * PROMPT + [ANSWERED] * ANSWER, np.int8)
    chat = Chat(tokens, writers, np.zeros((len(tokens) - 1, 4), np.float16))
    beginnings = [Continuations([chat], seed=1)(number) for number in range(2000)]
    assert {len(one.tokens) for one in beginnings} == set(range(PROMPT, PROMPT + ANSWER))
    assert all(one.tokens == tokens[: len(one.tokens)].tolist() for one in beginnings)
