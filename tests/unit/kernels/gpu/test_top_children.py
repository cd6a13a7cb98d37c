from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.child_inputs import child_inputs_of, mask_out, mask_out_reference
from outrider.kernels.gpu.sampling_inputs import VocabularyShard
from outrider.kernels.gpu.top_children import top_children, top_children_reference
from outrider.kernels.sampling.draft_scores import DraftScorer
from tests.kernel_outputs import normal, unwritten
from tests.unit.kernels.gpu.test_gpu_sampling import Exchange, RequestSettings

SETTINGS = [
    RequestSettings(temperature=0.0, top_k=3),  # greedy: no filter
    RequestSettings(temperature=0.7, seed=2**64 - 3),
    RequestSettings(top_k=5, choice=2),
    RequestSettings(top_p=0.6, min_p=0.01),
    RequestSettings(temperature=1.3, top_k=40, top_p=0.8),
    RequestSettings(temperature=1e-4),
]
SCALES = [1.0, 0.5, 0.05, 2.0, 1.5, 1.0]
START = 11


def found_children(
    logits: Tensor,
    settings: list[RequestSettings],
    scales: list[float],
    k: int = 8,
    columns: int = 0,
    token_ids: Tensor | None = None,
    log_share: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Children and log-probabilities of the kernels, then of the reference."""
    device, rows = str(logits.device), logits.shape[0]
    positions = range(START, START + rows)
    inputs = child_inputs_of(settings, scales, positions, device, token_ids, log_share)
    results: list[Tensor] = []
    for function in (top_children, top_children_reference):
        tokens = unwritten(rows, k, dtype=torch.int32, device=device)
        logprobs = unwritten(rows, k, dtype=torch.float32, device=device)
        function(logits, columns or logits.shape[1], inputs, tokens, logprobs)
        results += [tokens, logprobs]
    return results[0], results[1], results[2], results[3]


def assert_same(tokens: Tensor, logprobs: Tensor, wanted: Tensor, of_wanted: Tensor) -> None:
    """Equal children; log-probabilities within 1e-4, or -inf alike."""
    assert tokens.tolist() == wanted.tolist()
    assert torch.allclose(logprobs, of_wanted, rtol=0, atol=1e-4)


def test_children_are_those_of_the_cpu_whatever_the_filters(
    dtype: torch.dtype, device: str
) -> None:
    """Columns past the vocabulary are padding; an odd number of them is no tile's."""
    logits = normal(len(SETTINGS), 1200, dtype=dtype, device=device) * 3
    logits[:, 1107:] = 99
    tokens, logprobs, wanted, of_wanted = found_children(
        logits, SETTINGS, SCALES, columns=1107, log_share=-0.25
    )
    assert_same(tokens, logprobs, wanted, of_wanted)
    scorer = DraftScorer(np.arange(1107, dtype=np.int32), 1107, -0.25)
    for row, (settings, scale) in enumerate(zip(SETTINGS, SCALES, strict=True)):
        own = logits[row : row + 1, :1107].float().cpu().numpy()
        rules = scorer.rules(settings, scale)
        found, scored = scorer.score(own, np.array([START + row]), rules, 8)
        assert tokens[row].tolist() == found[0].tolist()
        assert np.allclose(logprobs[row].cpu().numpy(), scored[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("contiguous", [True, False])
def test_noise_is_that_of_the_target_s_ids(contiguous: bool, device: str) -> None:
    ids = torch.arange(1500, dtype=torch.int32, device=device)
    if not contiguous:
        ids = (ids * 7 + 5)[torch.randperm(1500, generator=torch.Generator().manual_seed(1))]
    settings = [RequestSettings(seed=5), RequestSettings(temperature=0.0)]
    logits = normal(2, 1500, dtype=torch.float32, device=device)
    logits[:, 100:200] = 4.0  # equals: the lowest target id is the first
    tokens, logprobs, wanted, of_wanted = found_children(
        logits, settings, [1.0, 1.0], 5, token_ids=ids
    )
    assert_same(tokens, logprobs, wanted, of_wanted)
    assert tokens[1].tolist() == sorted(ids[100:200].tolist())[:5]
    plain = found_children(logits, settings, [1.0, 1.0], 5)[0]
    assert (plain.tolist() == tokens.tolist()) is contiguous


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, of inf - inf
def test_rows_with_few_tokens_or_no_maximum_say_none(device: str) -> None:
    logits = torch.full((4, 1030), -torch.inf, device=device)
    logits[0, [1029, 3]] = torch.tensor([1.0, 2.0], device=device)
    logits[2, 3] = torch.inf
    logits[3] = torch.nan
    logits[3, [8, 7]] = 0.0
    for effective_temperature in (0.0, 1.0):
        settings = [RequestSettings(temperature=effective_temperature)] * 4
        tokens, logprobs, wanted, of_wanted = found_children(logits, settings, [1.0] * 4, 3)
        assert_same(tokens, logprobs, wanted, of_wanted)
    first = found_children(logits, [RequestSettings(temperature=0.0)] * 4, [1.0] * 4, 3)[0].tolist()
    assert first == [[3, 1029, -1], [-1] * 3, [-1] * 3, [7, 8, -1]]


def test_more_equals_than_children_leave_the_lowest_ids(device: str) -> None:
    tokens, logprobs, wanted, of_wanted = found_children(
        torch.zeros(1, 4500, device=device), [RequestSettings(temperature=0.0)], [0.3]
    )
    assert_same(tokens, logprobs, wanted, of_wanted)
    assert tokens.tolist() == [list(range(8))]


@pytest.mark.parametrize("listed", [False, True])
def test_ranks_that_share_a_vocabulary_rank_as_one_does(listed: bool, device: str) -> None:
    settings = [
        RequestSettings(seed=3),
        RequestSettings(temperature=0.0),
        RequestSettings(top_p=0.7, top_k=900),
    ]
    scales, rows, share = [1.0, 0.5, 1.0], 3, 1600
    logits = normal(rows, 3 * share, dtype=torch.float32, device=device) * 2
    logits[:, 4700:] = -torch.inf  # padding of the last share
    ids = torch.arange(3 * share, dtype=torch.int32, device=device).flip(0).contiguous() * 2
    whole = found_children(logits, settings, scales, token_ids=ids if listed else None)
    assert_same(*whole)
    exchange = Exchange(3)

    def run(rank: int) -> tuple[Tensor, Tensor]:
        with exchange.turn:
            mine = slice(rank * share, (rank + 1) * share)
            own_ids = ids[mine].contiguous() if listed else None
            inputs = child_inputs_of(settings, scales, range(START, START + rows), device, own_ids)
            tokens = unwritten(rows, 8, dtype=torch.int32, device=device)
            logprobs = unwritten(rows, 8, dtype=torch.float32, device=device)
            gather = partial(exchange.gather, rank)
            own = logits[:, mine].contiguous()
            top_children(own, share, inputs, tokens, logprobs, VocabularyShard(rank, gather))
            return tokens, logprobs

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(run, range(3)))
    for tokens, logprobs in results:
        assert_same(tokens, logprobs, whole[0], whole[1])
        assert torch.equal(logprobs, results[0][1])


def test_masked_columns_are_left_out_of_their_rows(dtype: torch.dtype, device: str) -> None:
    logits = normal(4, 1100, dtype=dtype, device=device)
    allowed = torch.rand(2, 1030, generator=torch.Generator().manual_seed(2)).to(device) > 0.3
    masks = torch.tensor([1, -1, 0, 1], dtype=torch.int32, device=device)
    expected, before = logits.clone(), logits.clone()
    mask_out(logits, 1030, allowed, masks)
    mask_out_reference(expected, 1030, allowed, masks)
    assert torch.equal(logits, expected)
    assert torch.equal(logits[1], before[1])
    assert torch.equal(logits[0] == -torch.inf, torch.cat([~allowed[1], masks.new_zeros(70) > 0]))


def test_what_cannot_be_ranked_is_named(device: str) -> None:
    logits, settings = torch.zeros(1, 8, device=device), [RequestSettings()]
    tokens = torch.zeros(1, 8, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="error_scales"):
        child_inputs_of(settings, [0.0], [1], device)
    inputs = child_inputs_of(settings, [1.0], [1], device)
    with pytest.raises(ValueError, match="columns: 9"):
        top_children(logits, 9, inputs, tokens, tokens.float())
    with pytest.raises(ValueError, match="logprobs"):
        top_children(logits, 8, inputs, tokens, tokens)
    with pytest.raises(ValueError, match="17 children"):
        top_children(logits, 8, inputs, torch.zeros(1, 17).int(), torch.zeros(1, 17))
