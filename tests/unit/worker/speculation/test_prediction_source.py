"""The prediction source: where an answer is in its prediction, against a naive search."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.speculation.prediction_source import (
    MATCHED,
    NEAR,
    PLACE,
    SURE,
    Prediction,
    add_predicted,
    index_prediction,
)
from outrider.worker.speculation.suffix_automaton import MAX_TOKENS
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.mirror_table import DRAFT, NOBODY, PREDICTION, SUFFIX
from outrider.worker.tree.walk import ROOT

PROMPT = [1, 2, 3]
FILLER = list(range(1000, 1000 + 2 * NEAR))
"""Tokens that occur once, more of them than are near."""


class Followed:
    """A sequence that has a prediction."""

    def __init__(self, prediction: list[int]) -> None:
        self.mirror = Mirror(len(PROMPT) - 1)
        self.mirror.tokens[: len(PROMPT)] = PROMPT
        self.prediction = Prediction.of(np.array(prediction, np.int32), len(PROMPT))
        index_prediction(self.prediction)

    def write(self, *answer: int) -> list[int]:
        """Commit tokens of the answer; return the path that is proposed after them, from the
        root."""
        self.mirror.commit(np.array(answer, np.int32))
        add_predicted(self.mirror.tables, self.prediction, 4, 32)
        path, above = list[int](), ROOT
        for node, parent in enumerate(self.mirror.parent.tolist()):
            if parent == above and self.mirror.proposer[node] == PREDICTION:
                path.append(self.mirror.token.item(node))
                above = node
        return path


def ends_at(prediction: list[int], end: list[int]) -> list[int]:
    """Return the places after each occurrence of an end."""
    count = len(end)
    return [at for at in range(count, len(prediction) + 1) if prediction[at - count : at] == end]


texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(texts, texts)
def test_the_place_is_after_the_longest_end_of_the_answer(
    prediction: list[int], answer: list[int]
) -> None:
    """Of the answer alone: the prompt is no part of it."""
    followed, place = Followed(prediction), 0
    for count in range(1, len(answer) + 1):
        followed.write(answer[count - 1])
        ends = [answer[count - n : count] for n in range(count, 0, -1)]
        longest = next((end for end in ends if ends_at(prediction, end)), [])
        before, place = place, followed.prediction.numbers.item(PLACE)
        assert followed.prediction.numbers[MATCHED] == len(longest)
        if longest:
            assert place in ends_at(prediction, longest)
            assert place == before + 1 or before + 1 not in ends_at(prediction, longest)


def test_the_beginning_is_proposed_where_the_answer_begins() -> None:
    followed = Followed([5, 6, 7, 8, 9])
    assert followed.write(5) == [6, 7, 8, 9]
    assert followed.mirror.logprob[0] > np.log(0.8)
    assert Followed([5, 6, 7, 8, 9]).write(11) == [5, 6, 7, 8]


def test_an_answer_that_goes_another_way_is_found_again() -> None:
    followed = Followed([5, 6, 7, 8, 9, 10, 11, 12])
    followed.write(5, 6, 7, 8)
    assert followed.write(50) == [9, 10, 11, 12], "what follows the last sure place"
    assert followed.write(10) == [11, 12]


def test_of_several_matches_the_next_after_the_last_sure_place_is_taken() -> None:
    line = [20, 21]
    followed = Followed([*line, 1, *FILLER, 5, 6, 7, 8, 9, *line, 2, *line, 3])
    followed.write(5, 6, 7, 8)
    assert followed.write(50, 20) == [21, 2, 20, 21]
    far = Followed([*line, 1, 5, 6, 7, 8, *FILLER, *line, 2])
    far.write(5, 6, 7, 8)
    assert far.write(50, 20)[:2] == [21, 1], "none is near: the first"


def test_short_matches_of_what_was_put_in_do_not_move_the_sure_place() -> None:
    prediction = [5, 6, 7, 8, 9, 30, 10, 30, 11, 30, 12]
    followed = Followed(prediction)
    followed.write(*prediction[:SURE])
    for new in (60, 61, 62):
        assert followed.write(new, 30) == [10, 30, 11, 30]
    assert followed.write(63) == [9, 30, 10, 30]


def test_a_prediction_longer_than_any_text_is_indexed_whole() -> None:
    prediction = [at % 30011 for at in range(4 * MAX_TOKENS)]
    followed = Followed(prediction)
    assert followed.write(*prediction[-8:-4]) == prediction[-4:]


def test_of_two_local_sources_the_prediction_is_heard() -> None:
    mirror = Mirror(0)
    one = np.array([ROOT], np.int32), np.array([4], np.int32)
    for proposer, logprob in ((SUFFIX, -3.0), (PREDICTION, -1.0), (SUFFIX, -2.0)):
        mirror.add_local(*one, np.array([logprob], np.float32), proposer)
    assert (mirror.proposer.tolist(), mirror.logprob.tolist()) == ([PREDICTION], [-1.0])
    nodes, drafted = mirror.tables.nodes, Mirror(0)
    assert nodes.other[0] == NOBODY
    for proposer in (DRAFT, SUFFIX, PREDICTION, SUFFIX):
        drafted.add_local(*one, np.array([-1.0], np.float32), proposer)
    assert drafted.proposer.tolist() == [DRAFT]
    assert drafted.tables.nodes.other[0] == PREDICTION
