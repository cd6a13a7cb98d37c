"""A draft's runner: top children from its model's logits."""

import math
from dataclasses import dataclass

import numpy as np

from outrider.worker.engine.runner import ChildQuery, ChildRules, DraftRunner, TopChildren
from outrider.worker.model.rows import Rows, prompt_rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import HashModel, TokenPool

VOCABULARY = 50


@dataclass(frozen=True)
class Part:
    query: ChildQuery


@dataclass(frozen=True)
class Step:
    parts: tuple[Part, ...]
    rows: Rows


def children(share: float) -> TopChildren:
    """One row with output, of which three children are wanted."""
    kv_cache = TokenPool(1, 64)
    token = np.array([3], np.int32)
    block_table = kv_cache.admit(token, 64)
    assert block_table is not None
    rows = prompt_rows(token, 0, block_table, wants_output=True)
    rules = ChildRules(SamplingParams(), 1.0, 3, np.ones(VOCABULARY, np.bool_), None)
    query = ChildQuery(rules, np.array([1], np.int32), NO_PATH)
    (one,) = DraftRunner(HashModel(kv_cache), None, VOCABULARY, share).run(
        Step((Part(query),), rows)
    )
    return one


def test_estimates_are_lowered_by_the_share_of_tokens_that_the_draft_can_output() -> None:
    whole, part = children(1.0), children(0.9)
    assert np.array_equal(whole.tokens, part.tokens)
    assert np.allclose(part.logprobs - whole.logprobs, math.log(0.9), atol=1e-6)
