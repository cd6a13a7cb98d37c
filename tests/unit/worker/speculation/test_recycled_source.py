"""The recycled source: what it keeps of each token's last row, and the tree that it proposes."""

import math

import numpy as np
import pytest

from outrider.worker.speculation.recycled_source import (
    LIKELIEST,
    MAX_SLOTS,
    NO_TOKEN,
    RecycledTable,
    note,
    recycled,
)
from outrider.worker.tree.walk import ROOT

LOGITS = {3: 2.0, 4: 1.0, 5: 0.0}
SHARES = {token: math.exp(logit) for token, logit in LOGITS.items()}


def table_of(rows: dict[int, dict[int, float]], tokens: int = 100) -> RecycledTable:
    """Note rows by their token, each the logits of its likeliest tokens."""
    table = RecycledTable.empty(tokens)
    for token, likeliest in rows.items():
        ids = np.full(LIKELIEST, NO_TOKEN, np.int32)
        logits = np.full(LIKELIEST, -np.inf, np.float32)
        ids[: len(likeliest)], logits[: len(likeliest)] = [*likeliest], [*likeliest.values()]
        note(table, token, ids, logits)
    return table


def found(
    table: RecycledTable, root: int, most: int = 16, deepest: int = 8
) -> dict[tuple[int, ...], float]:
    """Return the proposals by their paths, each with its estimate."""
    parents, tokens, logprobs = recycled(table, root, most, deepest)
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        paths.append((*(() if parent == ROOT else paths[parent]), token))
    return dict(zip(paths, logprobs.tolist(), strict=True))


def test_a_token_is_followed_by_the_likeliest_of_its_last_row_by_their_shares() -> None:
    table = table_of({7: LOGITS})
    note(table, 8, np.full(LIKELIEST, 1, np.int32), np.zeros(LIKELIEST, np.float32))
    total = sum(SHARES.values())
    expected = {(token,): math.log(share / total) for token, share in SHARES.items()}
    assert found(table, 7) == pytest.approx(expected)


def test_a_newer_row_of_a_token_replaces_the_older() -> None:
    table = table_of({7: LOGITS})
    ids = np.full(LIKELIEST, NO_TOKEN, np.int32)
    ids[0] = 9
    note(table, 7, ids, np.zeros(LIKELIEST, np.float32))
    assert [*found(table, 7)] == [(9,)]


def test_likelier_paths_come_first_and_go_on_from_their_last_token() -> None:
    table = table_of({7: LOGITS, 3: {1: 5.0, 2: 0.0}, 1: {7: 0.0}})
    assert [*found(table, 7, most=4)] == [(3,), (3, 1), (3, 1, 7), (3, 1, 7, 3)]
    assert [*found(table, 7, most=4, deepest=1)] == [(3,), (4,), (5,)]


def test_a_token_without_a_row_gives_nothing() -> None:
    assert found(table_of({7: LOGITS}), 8) == {}


def test_a_table_without_room_notes_nothing() -> None:
    assert found(table_of({7: LOGITS}, tokens=0), 7) == {}


def test_a_table_is_no_larger_for_a_longer_answer_and_keeps_newer_tokens() -> None:
    table = table_of({token: {token + 1: 0.0} for token in range(3 * MAX_SLOTS)}, tokens=10**6)
    assert len(table.token) == MAX_SLOTS
    last = 3 * MAX_SLOTS - 1
    assert (last + 1,) in found(table, last)
    for token in table.token.tolist():
        assert token == NO_TOKEN or (token + 1,) in found(table, token)


def test_a_row_without_a_number_gives_nothing() -> None:
    table = table_of({7: {}})
    assert found(table, 7) == {}
