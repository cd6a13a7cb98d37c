"""The suffix source: what it finds against a naive search of the text."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.speculation import suffix_automaton
from outrider.worker.speculation.suffix_automaton import (
    EDGES,
    MOST_READ,
    READ,
    START,
    STATES,
    SuffixTables,
    longest_match,
    read,
)
from outrider.worker.speculation.suffix_source import DOUBT, MAX_BRANCHES, proposals
from outrider.worker.tree.walk import ROOT

Node = tuple[tuple[int, ...], float]
"""Tokens of a path from the root, and the estimate of its last one."""


def automaton(
    text: list[int], room: int | None = None, steps: tuple[int, ...] = ()
) -> SuffixTables:
    """Read a text in steps that end at the given lengths, then whole."""
    tables = SuffixTables.empty(len(text) if room is None else room)
    tokens = np.array(text, np.int32)
    for length in (*steps, len(text)):
        read(tables, tokens, length, MOST_READ)
    return tables


def occurrences(text: list[int], part: list[int]) -> int:
    return sum(text[at : at + len(part)] == part for at in range(len(text) - len(part) + 1))


def repeated_suffix(text: list[int]) -> list[int]:
    """Return the longest suffix that occurs more than once."""
    for begin in range(1, len(text)):
        if occurrences(text, text[begin:]) > 1:
            return text[begin:]
    return []


def found(tables: SuffixTables, most: int = 16, deepest: int = 8) -> dict[tuple[int, ...], float]:
    """Return the proposals by their paths, each with its estimate."""
    parents, tokens, logprobs = proposals(tables, most, deepest)
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    assert len(set(paths)) == len(paths)
    return dict(zip(paths, logprobs.tolist(), strict=True))


texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(texts, st.data())
def test_the_longest_match_and_its_continuations_are_those_of_a_naive_search(
    text: list[int], data: st.DataObject
) -> None:
    """However the text came, in one piece or token by token."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    tables = automaton(text, steps=tuple(cuts))
    match = repeated_suffix(text)
    state = longest_match(tables)
    assert tables.length[state] == len(match)
    assert (state == START) == (match == [])
    followers = {token for token in range(4) if match and occurrences(text, [*match, token])}
    first = {path[0]: value for path, value in found(tables, most=64).items() if len(path) == 1}
    assert set(first) == followers
    total = sum(occurrences(text, [*match, token]) for token in followers)
    for token, estimate in first.items():
        share = occurrences(text, [*match, token]) / total
        assert math.exp(estimate) == pytest.approx(share * len(match) / (len(match) + DOUBT))


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 5), st.integers(1, 12))
def test_every_path_has_occurred_after_the_match(text: list[int], deepest: int, most: int) -> None:
    paths = found(automaton(text), most, deepest)
    match = repeated_suffix(text)
    assert len(paths) <= most
    for path, estimate in paths.items():
        assert len(path) <= deepest
        assert occurrences(text, [*match, *path]) > 0
        assert estimate <= 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=30, max_size=120), st.integers(4, 20), st.integers(1, 7)
)
def test_a_text_longer_than_its_room_goes_on_with_its_later_part(
    text: list[int], room: int, most: int
) -> None:
    """Read in pieces, it says when nothing may be found; memory does not grow."""
    tables, tokens = SuffixTables.empty(room), np.array(text, np.int32)
    for length in range(1, len(text) + 1):
        before = int(tables.numbers[READ])
        is_read = read(tables, tokens, length, most)
        assert tables.numbers[READ] - max(before, length - room // 2) <= most
        assert is_read == (tables.numbers[READ] == length)
        assert tables.numbers[STATES] <= 2 * room + 1
        assert tables.numbers[EDGES] <= 3 * room + 1
    while not read(tables, tokens, len(text), most):
        pass
    held = int(tables.length[tables.numbers[suffix_automaton.LAST]])
    assert room // 2 <= held <= room
    assert found(tables) == found(automaton(text[-held:]))


def test_likelier_paths_come_first_and_share_the_room() -> None:
    """After `1 2` came 3 three times and 4 once."""
    text = [1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2, 3, 8, 1, 2]
    paths = found(automaton(text), most=2, deepest=1)
    assert list(paths) == [(3,), (4,)]
    assert math.exp(paths[3,]) == pytest.approx(3 / 4 * 2 / (2 + DOUBT))


def test_a_copied_passage_is_proposed_to_its_depth() -> None:
    """And trusted the more, the longer the match is."""
    passage = list(range(10, 40))
    paths = found(automaton([*passage, 1, 2, *passage[:12]]), most=8, deepest=8)
    assert list(paths) == [tuple(passage[12 : 12 + n]) for n in range(1, 9)]
    estimates = list(paths.values())
    assert estimates == sorted(estimates)


def test_a_text_without_repetition_gives_nothing() -> None:
    assert found(automaton(list(range(50)))) == {}


def test_an_automaton_without_room_reads_nothing() -> None:
    assert found(automaton([1, 1, 1, 1], room=0)) == {}


def test_of_many_continuations_the_newest_are_weighed() -> None:
    """Their estimates count the older ones too."""
    text = [token for follower in range(100, 120) for token in (7, follower)] + [7]
    paths = found(automaton(text), most=64, deepest=1)
    assert [path[0] for path in sorted(paths)] == list(range(120 - MAX_BRANCHES, 120))
    assert math.exp(paths[119,]) == pytest.approx(1 / 20 * 1 / (1 + DOUBT))
