"""Reduced vocabularies: what the target says, and what it may say."""

import numpy as np
import torch

from outrider.distil.shards import ANSWERED, GIVEN, Chat
from outrider.distil.vocabulary import MOST_A_CHAT, choose_ids, counts, coverage

HEAD = torch.eye(6, 4) * 20


def chat(given: list[int], answered: list[int], says: int) -> Chat:
    """A chat whose features make `says` likely everywhere."""
    writers = [GIVEN] * len(given) + [ANSWERED] * len(answered)
    features = np.zeros((len(writers) - 1, 4), np.float16)
    features[:, says] = 1
    tokens = np.array([*given, *answered], np.int32)
    return Chat(tokens, np.array(writers, np.int8), features)


def test_tokens_that_are_said_count_and_those_that_are_given_do_not() -> None:
    found = counts([chat([5, 5], [1, 1, 2], 0), chat([5], [1] * 30, 0)], 6)
    assert found.tolist() == [0, 2 + MOST_A_CHAT, 1, 0, 0, 0]


def test_what_the_target_might_have_said_is_chosen_too() -> None:
    chats = [chat([5], [1, 1, 2], 3)]
    assert choose_ids(chats, HEAD, 3, [], 0).tolist() == [1, 2, 3]


def test_end_tokens_are_always_among_them() -> None:
    assert 5 in choose_ids([chat([4], [1, 2, 3], 3)], HEAD, 2, [5], 0)


def test_coverage_is_that_of_answers() -> None:
    chats = [chat([5, 5], [1, 1, 2], 0), chat([4], [3], 0)]
    assert coverage(chats, np.array([1, 2])) == 0.75
