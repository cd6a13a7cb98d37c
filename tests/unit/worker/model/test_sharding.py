"""Cutting a model over ranks: what each holds, and that their parts add up to the whole."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.special import expit, softmax

from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.sharding import HeadCut, Shard
from outrider.worker.model.tensor_names import expected_shapes
from tests.tiny_models import write_tiny

CUTS = [("qwen2", degree) for degree in (1, 2, 3, 4, 6, 8)] + [
    ("llama", 3),
    ("mistral", 4),
    ("qwen3", 2),
    ("qwen3", 8),
]
"""Biases are cut with their matrices, and no other family has more to cut."""
LAYER = "model.layers.0"
Weights = dict[str, NDArray[np.float32]]
Rows = NDArray[np.float64]


def model(folder: Path, family: str, **fields: Any) -> tuple[ModelConfig, Weights]:
    """9 query heads over 3 key heads, a width and a vocabulary that divide by little."""
    odd = {"hidden": 72, "heads": 9, "kv_heads": 3, "vocab": 301, "intermediate_size": 100}
    write_tiny(folder, family, **(odd | fields))
    return read_config(folder), load_file(folder / "model.safetensors")


def rank_of(
    config: ModelConfig, weights: Weights, rank: int, degree: int
) -> tuple[ModelConfig, Weights]:
    """One rank's config and weights, under the same names."""
    share = Shard(config, rank, degree)
    return share.config, {name: share.cut(name, tensor) for name, tensor in weights.items()}


def attention(config: ModelConfig, weights: Weights, x: Rows) -> Rows:
    """What attention without rotation, mask and norms adds to the rows of x, in fp64."""

    def of(name: str) -> Rows:
        return weights[f"{LAYER}.self_attn.{name}"].astype(np.float64)

    def project(name: str, heads: int) -> Rows:
        bias = of(f"{name}.bias") if config.qkv_bias else 0
        out = x @ of(f"{name}.weight").T + bias
        return out.reshape(len(x), heads, config.head_dim).swapaxes(0, 1)

    group = config.heads // config.kv_heads
    q = project("q_proj", config.heads)
    k, v = (project(n, config.kv_heads).repeat(group, 0) for n in ("k_proj", "v_proj"))
    seen = softmax(q @ k.swapaxes(1, 2) / config.head_dim**0.5, -1) @ v
    return seen.swapaxes(0, 1).reshape(len(x), -1) @ of("o_proj.weight").T


def feed_forward(weights: Weights, x: Rows) -> Rows:
    gate, up, down = (
        weights[f"{LAYER}.mlp.{n}_proj.weight"].astype(np.float64) for n in ("gate", "up", "down")
    )
    gated = x @ gate.T
    return (gated * expit(gated) * (x @ up.T)) @ down.T


def some_rows(config: ModelConfig) -> Rows:
    return np.random.default_rng(0).standard_normal((5, config.hidden))


@pytest.mark.parametrize(("family", "degree"), CUTS)
def test_parts_of_all_ranks_add_up_to_the_whole(tmp_path: Path, family: str, degree: int) -> None:
    config, weights = model(tmp_path, family, tie_word_embeddings=False)
    x = some_rows(config)
    parts = [rank_of(config, weights, rank, degree) for rank in range(degree)]
    attended = sum(attention(c, w, x) for c, w in parts)
    assert np.allclose(attended, attention(config, weights, x), atol=1e-12)
    fed = sum(feed_forward(w, x) for _, w in parts)
    assert np.allclose(fed, feed_forward(weights, x), atol=1e-12)
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        rows = np.concatenate([w[name] for _, w in parts])
        assert np.array_equal(rows[: config.vocab], weights[name])
        assert not rows[config.vocab :].any()


@pytest.mark.parametrize(("family", "degree"), CUTS)
def test_every_rank_holds_tensors_of_one_shape(tmp_path: Path, family: str, degree: int) -> None:
    config, weights = model(tmp_path, family)
    for rank in range(degree):
        share, part = rank_of(config, weights, rank, degree)
        assert share == rank_of(config, {}, 0, degree)[0]
        assert {n: tuple(t.shape) for n, t in part.items()} == expected_shapes(share)


@pytest.mark.parametrize("degree", [3, 6, 7])
def test_rows_of_every_layer_of_a_rank_begin_on_64_bytes(tmp_path: Path, degree: int) -> None:
    config, _ = model(tmp_path, "llama", intermediate_size=28672)
    share = Shard(config, 0, degree).config
    assert share.ffn * 2 % 64 == 0  # 28672 / 6 in bfloat16 would be 9558 bytes
    assert share.ffn * degree < 28672 * 1.01


def test_a_width_that_does_not_divide_ends_in_zeros(tmp_path: Path) -> None:
    config, weights = model(tmp_path, "qwen2", heads=4, kv_heads=2, hidden=64)
    share, part = rank_of(config, weights, 3, 8)  # the last rank with a part of a width of 100
    real = config.ffn - 3 * share.ffn
    assert 0 < real < share.ffn
    for name in ("gate", "up", "down"):
        matrix = part[f"{LAYER}.mlp.{name}_proj.weight"]
        wide = matrix.T if name == "down" else matrix
        assert wide[:real].any(0).all()
        assert not wide[real:].any()


def test_a_rank_without_heads_adds_exactly_nothing(tmp_path: Path) -> None:
    config, weights = model(tmp_path, "qwen2", heads=4, kv_heads=2, hidden=64)
    share, part = rank_of(config, weights, 7, 8)  # four heads: the last four ranks have none
    x = some_rows(config)
    assert not attention(share, part, x).any()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "degree", "cut"),
    [
        (32, 8, 3, HeadCut(1, 3, 4)),  # whole key heads while there is one for each rank
        (32, 8, 8, HeadCut(1, 1, 4)),
        (64, 8, 16, HeadCut(2, 1, 4)),  # two ranks share a key head
        (9, 3, 4, HeadCut(1, 1, 3)),  # nothing is gained by copies: one rank has none
        (9, 3, 6, HeadCut(2, 1, 2)),
        (9, 3, 8, HeadCut(2, 1, 2)),
        (4, 1, 3, HeadCut(2, 1, 2)),
        (4, 1, 4, HeadCut(4, 1, 1)),
    ],
)
def test_heads_are_dealt_out(
    tmp_path: Path, heads: int, kv_heads: int, degree: int, cut: HeadCut
) -> None:
    config, _ = model(tmp_path, "llama", heads=heads, kv_heads=kv_heads, hidden=8 * heads)
    assert HeadCut.of(config, degree) == cut
    queries = [
        q for rank in range(degree) for q in Shard(config, rank, degree)._queries() if q >= 0
    ]
    assert queries == list(range(heads))


def test_a_reduced_vocabulary_is_cut_by_its_outputs(tmp_path: Path) -> None:
    config, weights = model(tmp_path, "llama", tie_word_embeddings=False)
    ids = tuple(range(0, 100, 2))
    few = dataclasses.replace(config, output_ids=ids, tied=True)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"][list(ids)]
    parts = [rank_of(few, weights, rank, 3) for rank in range(3)]
    assert [c.outputs for c, _ in parts] == [32] * 3
    rows = np.concatenate([w["lm_head.weight"] for _, w in parts])
    assert np.array_equal(rows[: len(ids)], weights["lm_head.weight"])
