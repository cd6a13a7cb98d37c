"""Sampling and a draft's children over whole vocabularies: the CPU's tokens, in every launch."""

import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.sampling import sample, sample_reference
from outrider.kernels.gpu.sampling_inputs import sampling_inputs_of
from outrider.worker.sampling.params import SamplingParams
from tests.gpu.shapes import differing, random
from tests.kernel_outputs import unwritten

VOCABULARIES = (49_152, 128_256, 151_936)


REQUESTS = (
    SamplingParams(),
    SamplingParams(0.8, seed=7),
    SamplingParams(1.3, top_k=40, seed=2**63 + 1),
    SamplingParams(1.0, top_p=0.9, seed=7),
    SamplingParams(0.7, top_k=200, top_p=0.95, min_p=0.02, seed=7, choice=3),
)


def sampled(kernel: object, logits: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return tokens and log-probabilities; rows have the requests' settings in turn."""
    rows, device = len(logits), str(logits.device)
    own = [REQUESTS[(first + row) % len(REQUESTS)] for row in range(rows)]
    inputs = sampling_inputs_of(own, range(100 + first, 100 + first + rows), device)
    tokens = unwritten(rows, dtype=torch.int32, device=device)
    logprobs = unwritten(rows, dtype=torch.float32, device=device)
    kernel(logits, logits.shape[1], inputs, tokens, logprobs)  # type: ignore[operator]
    return tokens, logprobs


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_tokens_are_those_of_the_cpu_alone_and_among_others(vocabulary: int, device: str) -> None:
    logits = 4 * random(64, vocabulary, device=device, dtype=torch.float32)
    tokens, logprobs = sampled(sample, logits)
    for row in (0, 1, 2, 3, 4, 63):
        alone, own = sampled(sample, logits[row : row + 1], row)
        assert (alone.item(), own.item()) == (tokens[row].item(), logprobs[row].item())
    assert differing(lambda: sampled(sample, logits)[0], tokens) == 0
    few = 2 * len(REQUESTS)
    assert tokens[:few].tolist() == sampled(sample_reference, logits[:few])[0].tolist()


def test_sanitized_sampling_reads_and_writes_its_own(device: str) -> None:
    """All filters over a whole vocabulary, for a memory checker."""
    logits = random(len(REQUESTS), VOCABULARIES[1], device=device, dtype=torch.float32)
    tokens, _ = sampled(sample, logits)
    assert ((tokens >= 0) & (tokens < VOCABULARIES[1])).all()
