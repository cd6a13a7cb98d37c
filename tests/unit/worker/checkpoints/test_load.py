"""Loading tensors: whole, sharded, int8, borrowed, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from outrider.worker.checkpoints.checkpoint import compare_head
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from tests.tiny_models import write_draft_of, write_shards, write_tiny

EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


def prepared(directory: Path, embeddings: Path | None = None) -> PreparedModel:
    return PreparedModel("tiny", directory, directory, directory, "0" * 64, embeddings)


def rewrite(directory: Path, **changes: NDArray[Any] | None) -> None:
    """Replaces tensors, or drops those that are None; `__` stands for a dot."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    tensors = load_file(directory / "model.safetensors") | named
    kept = {name: value for name, value in tensors.items() if value is not None}
    save_file(kept, directory / "model.safetensors")


AS_COMPUTED = ("llama", "mistral", "qwen2", "qwen3")
"""Families that store what a pass computes with."""


def edit(directory: Path, **fields: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("family", "tied"), [*((family, True) for family in AS_COMPUTED), ("llama", False)]
)
def test_every_family_is_loaded_as_it_was_saved(tmp_path: Path, family: str, tied: bool) -> None:
    write_tiny(tmp_path, family, tie_word_embeddings=tied)
    config, tensors = load(prepared(tmp_path))
    saved = load_file(tmp_path / "model.safetensors")
    assert tensors.keys() == saved.keys()
    assert ("lm_head.weight" in tensors) is not tied
    assert config.tied is tied
    for name, value in tensors.items():
        assert np.array_equal(value, saved[name]), name


def test_shards_load_like_one_file(tmp_path: Path) -> None:
    whole = write_tiny(tmp_path / "whole")
    cut = write_shards(whole, tmp_path / "cut")
    assert len(list(cut.glob("*.safetensors"))) > 1
    _, expected = load(prepared(whole))
    _, tensors = load(prepared(cut))
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)


def test_one_file_counts_whatever_an_old_index_says(tmp_path: Path) -> None:
    _, expected = load(prepared(write_tiny(tmp_path)))
    index = {"weight_map": dict.fromkeys(expected, "model-00001-of-00002.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load(prepared(tmp_path))[1].keys() == expected.keys()


def test_a_tied_head_that_is_stored_alone_is_the_embedding(tmp_path: Path) -> None:
    """As safetensors' `save_model` leaves it."""
    _, expected = load(prepared(write_tiny(tmp_path, tie_word_embeddings=True)))
    rewrite(tmp_path, model__embed_tokens__weight=None, lm_head__weight=expected[EMBEDDING])
    config, tensors = load(prepared(tmp_path))
    assert config.tied
    assert tensors.keys() == expected.keys()
    assert np.array_equal(tensors[EMBEDDING], expected[EMBEDDING])


@pytest.mark.parametrize("own", [True, False])
def test_a_head_of_its_own_is_used_though_the_config_ties_it(tmp_path: Path, own: bool) -> None:
    _, expected = load(prepared(write_tiny(tmp_path, tie_word_embeddings=True)))
    head = expected[EMBEDDING] + np.float32(own)
    rewrite(tmp_path, lm_head__weight=head)
    compare_head(tmp_path, tmp_path)
    config, tensors = load(prepared(tmp_path))
    assert config.tied is not own
    if own:
        assert np.array_equal(tensors["lm_head.weight"], head)


def test_heads_are_compared_once(tmp_path: Path) -> None:
    write_tiny(tmp_path, tie_word_embeddings=True)
    compare_head(tmp_path, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    compare_head(tmp_path, tmp_path)  # reads nothing


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    cut = write_shards(write_tiny(tmp_path / "whole"), tmp_path / "cut")
    lost = sorted(cut.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelError, match=f"{lost.name} does not exist"):
        load(prepared(cut))


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", 7])
def test_an_index_cannot_point_out_of_its_folder(tmp_path: Path, name: object) -> None:
    (write_tiny(tmp_path) / "model.safetensors").unlink()
    index = {"weight_map": {EMBEDDING: name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="is not a file name"):
        load(prepared(tmp_path))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_half_precision_becomes_float32(tmp_path: Path, dtype: str) -> None:
    write_tiny(tmp_path)
    values = load_file(tmp_path / "model.safetensors")[QUERY]
    if dtype == "F16":
        half: NDArray[Any] = values.astype(np.float16)
        exact = half.astype(np.float32)
    else:  # the upper half of a float32
        half = (values.view(np.uint32) >> 16).astype(np.uint16)
        exact = (half.astype(np.uint32) << 16).view(np.float32)
    rewrite(tmp_path, **{QUERY.replace(".", "__"): half})
    relabel(tmp_path / "model.safetensors", QUERY, dtype)
    _, tensors = load(prepared(tmp_path))
    assert tensors[QUERY].dtype == np.float32
    assert np.array_equal(tensors[QUERY], exact)


def relabel(file: Path, name: str, dtype: str) -> None:
    """Give a tensor of a safetensors file another dtype: numpy has none for BF16."""
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    fields = json.loads(content[8:end])
    fields[name]["dtype"] = dtype
    header = json.dumps(fields).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])


def test_int8_rows_are_multiplied_by_their_scales(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    rows = np.random.default_rng(0).integers(-127, 128, (64, 64), np.int8)
    scale = np.linspace(0.1, 0.2, 64, dtype=np.float32)
    name = QUERY.replace(".", "__")
    rewrite(tmp_path, **{name: rows, f"{name}__scale": scale})
    _, tensors = load(prepared(tmp_path))
    assert np.array_equal(
        tensors[QUERY], np.stack([row * s for row, s in zip(rows, scale, strict=True)])
    )
    assert f"{QUERY}.scale" not in tensors
    rewrite(tmp_path, **{f"{name}__scale": scale[:3]})
    with pytest.raises(ModelError, match=f"int8 tensor {QUERY} needs"):
        load(prepared(tmp_path))


def test_a_draft_borrows_its_embedding_and_a_part_of_its_head(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target", tie_word_embeddings=False)
    draft = write_draft_of(write_tiny(tmp_path / "other", seed=5), tmp_path / "draft", layers=1)
    rewrite(draft, model__embed_tokens__weight=None)
    with pytest.raises(ModelError, match=rf"1 missing: {EMBEDDING}; set embeddings_from"):
        load(prepared(draft))
    lent = load_file(target / "model.safetensors")[EMBEDDING]
    config, tensors = load(prepared(draft, target))
    assert config.tied
    assert np.array_equal(tensors[EMBEDDING], lent)
    edit(draft, draft_vocab_ids=[5, 2, 300])
    config, tensors = load(prepared(draft, target))
    assert config.outputs == 3
    assert np.array_equal(tensors["lm_head.weight"], lent[[5, 2, 300]])


def test_an_embedding_of_another_width_cannot_be_borrowed(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target", hidden=32)
    draft = write_tiny(tmp_path / "draft")
    with pytest.raises(ModelError, match=rf"{EMBEDDING} \[512, 32\] instead of \[512, 64\]"):
        load(prepared(draft, target))


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    norm = np.ones(63, np.float32)
    rewrite(tmp_path, model__norm__weight=norm, extra__bias=norm)
    rewrite(tmp_path, **{QUERY.replace(".", "__"): None})
    with pytest.raises(ModelError) as caught:
        load(prepared(tmp_path))
    message = str(caught.value)
    assert f"1 missing: {QUERY}" in message
    assert "1 unexpected: extra.bias" in message
    assert "1 of the wrong shape: model.norm.weight [63] instead of [64]" in message


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    rewrite(tmp_path, model__norm__weight=np.ones(64, np.int32))
    with pytest.raises(ModelError, match=r"model\.norm\.weight is stored as I32, not F32, F16"):
        load(prepared(tmp_path))


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = write_tiny(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(prepared(tmp_path))
