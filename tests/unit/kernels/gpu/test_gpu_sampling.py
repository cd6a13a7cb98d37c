from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier, Lock

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.philox import gumbel, gumbel_bound, noise_bits
from outrider.kernels.gpu.sampling import sample, sample_reference
from outrider.kernels.gpu.sampling_inputs import VocabularyShard, sampling_inputs_of
from outrider.kernels.sampling import philox as cpu
from tests.kernel_outputs import assert_close, normal, unwritten

COUNT = 512


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """A request's settings."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 7
    choice: int = 0


@triton.jit
def noise_kernel(seed, choice, position, first, bits, noise, bound, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    words = noise_bits(tl.load(seed), choice, position, first, COUNT)
    at = tl.arange(0, COUNT)
    tl.store(bits + at, words.to(tl.int32, bitcast=True))
    tl.store(noise + at, gumbel(words))
    tl.store(bound + at, gumbel_bound(words))


@triton.jit
def gumbel_kernel(bits, noise, bound, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, COUNT)
    words = tl.load(bits + at).to(tl.uint32, bitcast=True)
    tl.store(noise + at, gumbel(words))
    tl.store(bound + at, gumbel_bound(words))


@pytest.mark.parametrize(
    ("seed", "choice", "position", "first"),
    [(7, 0, 1, 0), (2**64 - 1, 3, 70_000, 1024), (2**63 + 12345, 0, 131_071, 151_936)],
)
def test_noise_is_that_of_the_cpu(
    seed: int, choice: int, position: int, first: int, device: str
) -> None:
    seeds = torch.from_numpy(np.array([seed], np.uint64).view(np.int64)).to(device)
    bits = unwritten(COUNT, dtype=torch.int32, device=device)
    noise, bound = (unwritten(COUNT, dtype=torch.float32, device=device) for _ in range(2))
    noise_kernel[(1,)](
        seeds, choice, position, first, bits, noise, bound, COUNT, enable_fp_fusion=False
    )
    ids = np.arange(first, first + COUNT, dtype=np.int32)
    wanted = np.array([cpu.noise_bits(np.uint64(seed), choice, position, int(i)) for i in ids])
    assert np.array_equal(bits.cpu().numpy().view(np.uint32), wanted)
    row = np.empty(COUNT, np.float32)
    cpu.gumbel_row(np.uint64(seed), choice, position, ids, row)
    assert np.array_equal(noise.cpu().numpy(), row)
    assert (bound >= noise).all()


def test_noise_of_the_outermost_integers_is_that_of_the_cpu(device: str) -> None:
    turn = int(2**32 / np.e)  # where g crosses 0
    ends = [*range(128), *range(2**32 - 256, 2**32), *range(turn - 64, turn + 64)]
    integers = np.array(ends, np.uint32)
    bits = torch.from_numpy(integers.view(np.int32)).to(device)
    noise, bound = (unwritten(COUNT, dtype=torch.float32, device=device) for _ in range(2))
    gumbel_kernel[(1,)](bits, noise, bound, COUNT, enable_fp_fusion=False)
    wanted = np.array([cpu.gumbel(np.uint32(i)) for i in integers])
    assert np.array_equal(noise.cpu().numpy(), wanted)
    assert (bound >= noise).all()


def sampled(
    logits: Tensor, settings: list[RequestSettings], columns: int = 0, start: int = 11
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens and log-probabilities of the kernels, then of the reference."""
    device, rows = str(logits.device), logits.shape[0]
    inputs = sampling_inputs_of(settings, range(start, start + rows), device)
    results: list[Tensor] = []
    for function in (sample, sample_reference):
        tokens = unwritten(rows, dtype=torch.int32, device=device)
        logprobs = unwritten(rows, dtype=torch.float32, device=device)
        function(logits, columns or logits.shape[1], inputs, tokens, logprobs)
        results += [tokens, logprobs]
    return results[0], results[1], results[2], results[3]


def test_tokens_are_those_of_the_cpu(dtype: torch.dtype, device: str) -> None:
    """Filters in every combination; columns past the vocabulary are padding."""
    settings = [
        RequestSettings(temperature=0.0),
        RequestSettings(temperature=0.7, seed=2**64 - 3),
        RequestSettings(top_k=5, choice=2),
        RequestSettings(top_p=0.6),
        RequestSettings(min_p=0.1),
        RequestSettings(temperature=1.3, top_k=40, top_p=0.8, min_p=0.01),
        RequestSettings(temperature=1e-4),
        RequestSettings(top_p=1e-6),
    ]
    logits = normal(len(settings), 2000, dtype=dtype, device=device) * 3
    logits[:, 1900:] = 99
    tokens, logprobs, wanted, of_wanted = sampled(logits, settings, columns=1900)
    assert tokens.tolist() == wanted.tolist()
    assert_close(logprobs, of_wanted)


def test_many_draws_of_a_few_tokens_respect_every_cut(device: str) -> None:
    """Sixteen tokens of eight values: cuts among equals keep the lowest ids, as on the CPU."""
    row = torch.tensor([1.0, 0.5] * 4 + [0.0, 0.25, 0.0, -1.0] * 2, device=device)
    settings = [
        RequestSettings(seed=seed, top_k=top_k, top_p=top_p)
        for seed in range(3)
        for top_k, top_p in ((0, 0.3), (3, 1.0), (6, 0.9))
    ]
    tokens, _, wanted, _ = sampled(row.expand(len(settings), -1).contiguous(), settings)
    assert tokens.tolist() == wanted.tolist()
    assert len(set(wanted.tolist())) > 3


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # numpy's, of 1e-30
def test_equals_go_to_the_lowest_id_and_rows_without_a_maximum_to_none(device: str) -> None:
    logits = torch.zeros(5, 4200, device=device)
    logits[0, [4100, 70, 3000]] = 2
    logits[1] = -torch.inf
    logits[2, 3] = torch.inf
    logits[3] = torch.nan
    logits[4, 0] = torch.nan
    for effective_temperature in (0.0, 1e-30):
        tokens, _, wanted, _ = sampled(
            logits, [RequestSettings(temperature=effective_temperature)] * 5
        )
        assert tokens.tolist() == wanted.tolist()
    assert sampled(logits, [RequestSettings(temperature=0.0)] * 5)[0].tolist() == [
        70,
        -1,
        -1,
        -1,
        1,
    ]


@pytest.mark.parametrize("filtered", [False, True])
def test_ranks_that_share_a_vocabulary_draw_what_one_draws(filtered: bool, device: str) -> None:
    settings = [
        RequestSettings(seed=3),
        RequestSettings(temperature=0.0),
        RequestSettings(temperature=2.0, seed=9),
    ]
    if filtered:
        settings = [RequestSettings(top_p=0.7), RequestSettings(top_k=90, top_p=0.9)]
    rows = len(settings)
    logits = normal(rows, 4800, dtype=torch.float32, device=device) * 2
    logits[:, 1000:3000:50] = logits.amax() - 0.5  # equals in every share
    inputs = sampling_inputs_of(settings, range(5, 5 + rows), device)
    shares = [share.contiguous() for share in logits.split(1600, 1)]
    exchange = Exchange(len(shares))

    def run(rank: int) -> list[int]:
        with exchange.turn:
            result = unwritten(rows, dtype=torch.int32, device=device)
            logprobs = unwritten(rows, dtype=torch.float32, device=device)
            gather = partial(exchange.gather, rank)
            sample(shares[rank], 1600, inputs, result, logprobs, VocabularyShard(rank, gather))
            return result.tolist()

    with ThreadPoolExecutor(len(shares)) as pool:
        tokens = list(pool.map(run, range(len(shares))))
    assert tokens == [sampled(logits, settings, start=5)[0].tolist()] * len(shares)


class Exchange:
    """Ranks as threads that run in turns: the interpreter holds one program at a time."""

    def __init__(self, ranks: int) -> None:
        self.turn = Lock()
        self.all_here = Barrier(ranks, timeout=100)
        self.sent: dict[int, Tensor] = {}

    def gather(self, rank: int, local: Tensor) -> Tensor:
        self.sent[rank] = local
        self.turn.release()
        self.all_here.wait()
        together = torch.stack([self.sent[i] for i in range(len(self.sent))])
        self.all_here.wait()
        self.turn.acquire()
        return together


def test_what_does_not_fit_is_named(device: str) -> None:
    inputs = sampling_inputs_of([RequestSettings()], [0], device)
    tokens = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="columns: 6"):
        sample(torch.zeros(1, 8, device=device), 6, inputs, tokens, torch.zeros(1, device=device))
    with pytest.raises(ValueError, match="logprobs"):
        sample(torch.zeros(1, 8, device=device), 8, inputs, tokens, tokens)
