"""Filters of sampling keep what those of transformers keep."""

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.unit.kernels.sampling.test_sampling import FILTERS, Chain, kept, some_logits


@pytest.mark.parametrize("chain", FILTERS)
@pytest.mark.parametrize("spread", [0.5, 2.0, 8.0])
def test_filters_keep_what_the_warpers_of_transformers_keep(chain: Chain, spread: float) -> None:
    logits = some_logits(6, 3000, 3, spread)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(chain.temperature)])
    if chain.top_k:
        warpers.append(TopKLogitsWarper(chain.top_k))
    if chain.top_p < 1:
        warpers.append(TopPLogitsWarper(chain.top_p))
    if chain.min_p > 0:
        warpers.append(MinPLogitsWarper(chain.min_p))
    no_ids = torch.zeros((6, 0), dtype=torch.int64)
    expected = warpers(no_ids, torch.from_numpy(logits).double()).numpy() > -np.inf
    assert (kept(logits, chain) == expected).all()
