"""The index of finished answers, and the tree that it proposes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.speculation.answer_index import (
    GRAM,
    MAX_PLACES,
    MOST_LOOKED_AT,
    MOST_MATCHED,
    NO_ANSWERS,
    AnswerIndex,
    TextPlaces,
    find,
    write,
)
from outrider.worker.speculation.answer_source import answered
from outrider.worker.speculation.suffix_source import DOUBT
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import ROOT

ROOM = 64
TEXT = [1, 2, 3, 4]


def ids(tokens: list[int]) -> Ints:
    return np.array(tokens, np.int32)


def index_of(*answers: list[int], room: int = ROOM) -> AnswerIndex:
    """Write answers, one after the other."""
    index = AnswerIndex.empty(room)
    for answer in answers:
        write(index, ids(answer), 0, len(answer))
    return index


def found(
    index: AnswerIndex, text: list[int], most: int = 16, deepest: int = 8
) -> dict[tuple[int, ...], float]:
    """Return the proposals by their paths, each with its estimate."""
    parents, tokens, logprobs = answered(index, ids(text), len(text), most, deepest)
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    return dict(zip(paths, logprobs.tolist(), strict=True))


def trust(matched: int) -> float:
    return math.log(matched / (matched + DOUBT))


def test_what_followed_the_end_of_the_text_is_proposed_as_a_path() -> None:
    index = index_of([*TEXT, 5, 6, 7])
    expected = {(5,): trust(4), (5, 6): trust(5), (5, 6, 7): trust(6)}
    assert found(index, TEXT) == pytest.approx(expected)
    assert [*found(index, TEXT, deepest=2)] == [(5,), (5, 6)]
    assert [*found(index, TEXT, most=1)] == [(5,)]


def test_answers_that_go_on_differently_share_by_the_tokens_that_match() -> None:
    """Nine tokens match before 5, four before 6; 5 and 6 before 7 are nodes of their own."""
    before = [11, 12, 13, 14, 15]
    index = index_of([*before, *TEXT, 5, 7], [*TEXT, 6, 7])
    expected = {
        (5,): trust(9) + math.log(9 / 13),
        (5, 7): trust(10),
        (6,): trust(9) + math.log(4 / 13),
        (6, 7): trust(5),
    }
    assert found(index, [*before, *TEXT]) == pytest.approx(expected)


def test_an_answer_is_not_followed_by_the_next() -> None:
    assert found(index_of(TEXT, [5, 6]), TEXT) == {}


@pytest.mark.parametrize("text", [[], TEXT[1:], [9, *TEXT[1:]], [*TEXT, 9]])
def test_fewer_tokens_in_common_are_no_match(text: list[int]) -> None:
    assert found(index_of([*TEXT, 5]), text) == {}


def test_an_index_without_room_keeps_and_finds_nothing() -> None:
    write(NO_ANSWERS, ids([*TEXT, 5]), 0, 5)
    assert found(NO_ANSWERS, TEXT) == {}


def test_newer_answers_overwrite_the_oldest() -> None:
    others = [[10 * at + each for each in range(6)] for at in range(3, 12)]
    index = index_of([*TEXT, 5], *others)
    assert found(index, TEXT) == {}
    assert (others[-1][4],) in found(index, others[-1][:4])


def test_of_a_long_answer_the_end_is_kept() -> None:
    index = index_of(list(range(100, 300)))
    assert found(index, list(range(100, 150))) == {}
    assert (299,) in found(index, list(range(100, 299)))
    assert index.written[0] == 1 + ROOM // 2


def test_a_part_of_an_array_is_an_answer() -> None:
    index = AnswerIndex.empty(ROOM)
    write(index, ids([7, 7, *TEXT, 5, 8, 8]), 2, 7)
    assert [*found(index, TEXT)] == [(5,)]


words = st.lists(st.integers(0, 2), max_size=24)


@given(st.lists(words, max_size=8), words)
def test_places_are_the_longest_of_the_newest_matches(
    answers: list[list[int]], text: list[int]
) -> None:
    """Beside a search of all that was written; separators are no tokens."""
    index = index_of(*answers)
    written = [token for answer in answers for token in (-1, *answer[-ROOM // 2 :])]
    oldest = max(0, len(written) - ROOM)
    matches = []
    for place in range(len(written) - 1, oldest - 1, -1):
        most = min(place - oldest + 1, len(text), MOST_MATCHED)
        pairs = ((written[place - at], text[-1 - at]) for at in range(most))
        matched = next((at for at, (one, other) in enumerate(pairs) if one != other), most)
        if matched >= GRAM:
            matches.append((place, matched))
    places = TextPlaces(np.zeros(MAX_PLACES, np.int64), np.zeros(MAX_PLACES, np.int32))
    count = find(index, ids(text), len(text), places)
    best = sorted(matches[:MOST_LOOKED_AT], key=lambda one: -one[1])[:MAX_PLACES]
    pairs_found = zip(places.place[:count].tolist(), places.matched[:count].tolist(), strict=True)
    assert list(pairs_found) == best
