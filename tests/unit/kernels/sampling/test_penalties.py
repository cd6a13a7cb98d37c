"""Penalties and biases equal the reference, row by row, whatever the other rows' paths hold."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from outrider.kernels.sampling import reference
from outrider.kernels.sampling.penalties import Adjuster

VOCAB = 12  # few, so that texts repeat themselves


@dataclass(frozen=True)
class Changes:
    """Adjustments of a test."""

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    late: tuple[int, ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    forced: tuple[int, ...] = ()


TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=9)
PENALTIES = st.sampled_from([0.0, 0.0, -2.0, 0.31, 2.0])
CHANGES = st.builds(
    Changes,
    frequency_penalty=PENALTIES,
    presence_penalty=PENALTIES,
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.2, 1.3, 10.0]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=4).map(
        lambda biases: tuple(sorted(biases.items()))
    ),
    min_tokens=st.integers(0, 9),
    forced=st.lists(st.integers(0, VOCAB - 1), max_size=4).map(tuple),
    late=st.lists(st.integers(0, VOCAB - 1), max_size=2).map(tuple),
    forbidden=st.lists(
        st.lists(st.sampled_from((2, 7, 9)), min_size=1, max_size=3).map(tuple), max_size=3
    ).map(tuple),
)


def some_logits(rows: int, columns: int = VOCAB) -> np.ndarray:
    logits = np.random.default_rng(rows).normal(0, 3, (rows, columns)).astype(np.float32)
    logits[:, 1], logits[:, 2], logits[:, 3] = -np.inf, np.nan, 0.0
    return logits


def padded(paths: list[list[int]]) -> np.ndarray:
    """int32[rows, deepest] with -1 behind shorter paths."""
    table = np.full((len(paths), max(map(len, paths), default=0)), -1, np.int32)
    for row, path in zip(table, paths, strict=True):
        row[: len(path)] = path
    return table


def expected(logits: np.ndarray, changes: Changes, prompt: list[int], answer: list[int]) -> object:
    return reference.adjust(logits, prompt, answer, changes)


@run_with(derandomize=True, deadline=None, max_examples=200)
@given(CHANGES, TOKENS, st.lists(TOKENS, max_size=3), st.lists(TOKENS, max_size=5))
def test_each_row_is_adjusted_for_its_own_history(
    changes: Changes, prompt: list[int], commits: list[list[int]], paths: list[list[int]]
) -> None:
    adjuster = Adjuster(VOCAB, changes)
    adjuster.add_prompt(np.array(prompt, np.int32))
    answer: list[int] = []
    for commit in [*commits, []]:
        logits = some_logits(len(paths))
        given_logits = logits.copy()
        adjuster.adjust(logits, padded(paths))
        for row, before, path in zip(logits, given_logits, paths, strict=True):
            np.testing.assert_array_equal(row, expected(before, changes, prompt, answer + path))
        adjuster.add_answer(np.array(commit, np.int32))
        answer += commit


@run_with(derandomize=True, deadline=None, max_examples=60)
@given(CHANGES, TOKENS, TOKENS)
def test_columns_of_a_smaller_vocabulary_are_adjusted_as_their_tokens(
    changes: Changes, prompt: list[int], answer: list[int]
) -> None:
    known = np.array([7, 2, 9, 0], np.int32)
    columns = np.full(10, -1, np.int32)  # ids 10 and 11 are beyond it
    columns[known] = np.arange(4)
    adjuster = Adjuster(VOCAB, changes)
    adjuster.add_prompt(np.array(prompt, np.int32))
    wide = some_logits(1)
    narrow = np.ascontiguousarray(wide[:, known])
    adjuster.adjust(narrow, padded([answer]), columns)
    np.testing.assert_array_equal(narrow[0], expected(wide[0], changes, prompt, answer)[known])  # type: ignore[index]
