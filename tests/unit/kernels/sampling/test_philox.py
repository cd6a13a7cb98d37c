"""Sampling noise: published vectors of the generator, and noise that is exact to one unit."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from outrider.kernels.sampling import philox, reference

SEEDS = st.integers(0, 2**64 - 1)
WORDS = st.integers(0, 2**32 - 1)


@njit  # type: ignore[misc]
def gumbel_all(bits: np.ndarray, out: np.ndarray) -> None:
    for i in range(bits.shape[0]):
        out[i] = philox.gumbel(bits[i])


@njit  # type: ignore[misc]
def bound_all(bits: np.ndarray, out: np.ndarray) -> None:
    for i in range(bits.shape[0]):
        out[i] = philox.gumbel_bound(bits[i])


def noise_of(bits: np.ndarray) -> np.ndarray:
    out = np.full(bits.size, np.nan, np.float32)
    gumbel_all(bits.astype(np.uint32), out)
    return out


def bits_of_interest() -> np.ndarray:
    """Both ends, the zero crossing at 2^32 / e, and integers from everywhere."""
    zero = int(2**32 / np.e)
    return np.unique(
        np.concatenate(
            [
                np.arange(256),
                2**32 - 1 - np.arange(256),
                zero + np.arange(-300, 300),
                zero + np.arange(-300, 300) * 17,
                np.random.default_rng(0).integers(0, 2**32, 1000),
            ]
        )
    )


@pytest.mark.parametrize(
    ("counter", "seed", "words"),
    [  # kat_vectors of Random123 1.14, philox 4x32 10
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0_A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], seed: int, words: tuple[int, ...]
) -> None:
    blocks = np.array(counter, np.uint32).reshape(4, 1).repeat(37, axis=1)
    philox.philox(blocks, 37, np.uint64(seed))
    assert (blocks == np.array(words, np.uint32).reshape(4, 1)).all()
    expected = reference.philox(np.array(counter, np.uint64).reshape(4, 1), seed)
    assert expected[:, 0].tolist() == list(words)


def test_a_token_takes_its_word_of_its_block() -> None:
    block = np.array([[1 << 20], [7], [3], [0]], np.uint32)
    philox.philox(block, 1, np.uint64(5))
    bits = [int(philox.noise_bits(np.uint64(5), 3, 7, (1 << 22) + word)) for word in range(4)]
    assert bits == block[:, 0].tolist()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    seed=SEEDS, choice=WORDS, position=WORDS, first=st.integers(0, 2**29), blocks=st.integers(1, 70)
)
def test_a_run_of_tokens_has_the_bits_of_each(
    seed: int, choice: int, position: int, first: int, blocks: int
) -> None:
    out = np.zeros(4 * blocks, np.uint32)
    scratch = np.empty((4, blocks), np.uint32)
    philox.noise_run(np.uint64(seed), choice, position, 4 * first, scratch, out)
    tokens = 4 * first + np.arange(4 * blocks)
    assert (out == reference.noise_bits(seed, choice, position, tokens)).all()
    one = philox.noise_bits(np.uint64(seed), choice, position, int(tokens[-1]))
    assert int(one) == int(out[-1])


def test_changing_any_key_changes_the_noise() -> None:
    keys = [(1, 0, 5), (2, 0, 5), (1 << 32, 0, 5), (1, 1, 5), (1, 0, 6), (1, 5, 0)]
    tokens = np.arange(4096, dtype=np.int32)
    rows = np.empty((len(keys), tokens.size), np.float32)
    for row, (seed, choice, position) in zip(rows, keys, strict=True):
        philox.gumbel_row(np.uint64(seed), choice, position, tokens, row)
    correlation = np.corrcoef(rows)[~np.eye(len(keys), dtype=bool)]
    assert np.abs(correlation).max() < 0.07


def test_gumbel_is_exact_to_one_unit_in_the_last_place() -> None:
    bits = bits_of_interest()
    with localcontext() as context:
        context.prec = 50
        half = Decimal("0.5")
        exact = [-(-((Decimal(int(b)) + half) / 2**32).ln()).ln() for b in bits]
        noise = noise_of(bits)
        units = [Decimal(float(unit)) for unit in np.spacing(np.abs(noise))]
        errors = [
            abs(Decimal(float(g)) - e) / unit
            for g, e, unit in zip(noise, exact, units, strict=True)
        ]
    assert max(errors) <= 1


def test_gumbel_agrees_with_the_reference_on_many_integers() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000)
    noise, expected = noise_of(bits), reference.gumbel(bits)
    assert (np.abs(noise - expected) <= np.spacing(np.abs(expected))).all()


def test_gumbel_is_finite_and_monotone_at_both_ends() -> None:
    for bits in (np.arange(256), 2**32 - 256 + np.arange(256)):
        noise = noise_of(bits)
        assert np.isfinite(noise).all()
        assert (np.diff(noise) >= 0).all()
        assert (noise >= -3.2).all()
        assert (noise <= 22.9).all()
        assert (noise >= philox.MIN_GUMBEL).all()
        assert (noise <= philox.MAX_GUMBEL).all()
    assert (np.diff(noise_of(bits_of_interest())) >= 0).all()


def test_the_bound_is_above_the_noise_and_near_it_where_it_matters() -> None:
    bits = np.concatenate(
        [bits_of_interest(), np.random.default_rng(2).integers(0, 2**32, 200_000)]
    )
    noise, bound = noise_of(bits), np.full(bits.size, np.nan, np.float32)
    bound_all(bits.astype(np.uint32), bound)
    assert (bound >= noise).all()
    assert (bound - noise)[noise > 5].max() < 0.07


@settings(derandomize=True, deadline=None, max_examples=40)
@given(seed=SEEDS, position=WORDS, size=st.integers(1, 2600), ascending=st.booleans())
def test_a_gumbel_row_is_the_noise_of_each_listed_token(
    seed: int, position: int, size: int, ascending: bool
) -> None:
    ids = np.random.default_rng(size).choice(4000, size, replace=False).astype(np.int32)
    ids = np.sort(ids) if ascending else ids
    out = np.full(size, np.nan, np.float32)
    philox.gumbel_row(np.uint64(seed), 2, position, ids, out)
    assert (out == noise_of(reference.noise_bits(seed, 2, position, ids))).all()


def test_a_noise_cache_returns_the_same_rows_however_often_they_were_replaced() -> None:
    ids = np.arange(0, 300, 3, dtype=np.int32)
    cache = philox.NoiseCache(ids, positions=4)
    for position in [0, 1, 2, 1, 9, 3, 0, 2**31, 1, 1]:
        for seed, choice in ((2**64 - 1, 0), (3, 0), (3, 1)):
            expected = np.empty(ids.size, np.float32)
            philox.gumbel_row(np.uint64(seed), choice, position, ids, expected)
            assert (cache.row(seed, choice, position) == expected).all()


def test_a_cached_row_is_not_computed_again() -> None:
    cache = philox.NoiseCache(np.arange(8, dtype=np.int32), positions=2)
    cache.row(1, 0, 5)[:] = 42
    cache.row(1, 0, 6)
    assert (cache.row(1, 0, 5) == 42).all()
    cache.row(1, 0, 7)
    assert (cache.row(1, 0, 5) != 42).all()
