"""Tensors as families store them, made those that a pass computes with."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.stored_tensors import parts_of, stored_names
from outrider.worker.model.tensor_names import expected_shapes
from tests.tiny_models import FAMILIES, write_tiny

LAYER = "model.layers.0."


def checkpoint(folder: Path, family: str) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    write_tiny(folder, family)
    return read_config(folder), load_file(folder / "model.safetensors")


def computed(
    config: ModelConfig, name: str, stored: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    for part in parts_of(config, name, len(stored)):
        value = stored if part.rows is None else stored[part.rows]
        yield part.name, value + np.float32(part.more)


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_tensors_hold_all_that_a_pass_needs(tmp_path: Path, family: str) -> None:
    config, stored = checkpoint(tmp_path, family)
    assert sorted(stored_names(config)) == sorted(stored)
    found = dict(part for given in stored.items() for part in computed(config, *given))
    assert {name: value.shape for name, value in found.items()} == expected_shapes(config)


def test_norms_of_gemma_3_are_stored_less_one(tmp_path: Path) -> None:
    config, stored = checkpoint(tmp_path, "gemma3_text")
    for name, value in stored.items():
        ((own, found),) = computed(config, name, value)
        assert own == name
        assert np.array_equal(found, value + 1 if "norm" in name else value)


def test_matrices_of_phi_3_are_cut_by_their_rows(tmp_path: Path) -> None:
    config, stored = checkpoint(tmp_path, "phi3")
    qkv, gates = (stored[f"{LAYER}{n}.weight"] for n in ("self_attn.qkv_proj", "mlp.gate_up_proj"))
    found = dict(computed(config, f"{LAYER}self_attn.qkv_proj.weight", qkv))
    assert np.array_equal(found[f"{LAYER}self_attn.v_proj.weight"], qkv[96:])
    gate, up = computed(config, f"{LAYER}mlp.gate_up_proj.weight", gates)
    assert (gate[0], up[0]) == (f"{LAYER}mlp.gate_proj.weight", f"{LAYER}mlp.up_proj.weight")
    assert np.array_equal(np.concatenate((gate[1], up[1])), gates)


def test_numbers_that_turn_become_the_first_of_each_half(tmp_path: Path) -> None:
    config, stored = checkpoint(tmp_path, "phi3")
    assert (config.head_dim, config.rotary_dim) == (16, 8)
    name = f"{LAYER}self_attn.qkv_proj.weight"
    key = dict(computed(config, name, stored[name]))[f"{LAYER}self_attn.k_proj.weight"]
    order = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
    assert np.array_equal(key[16:], stored[name][64 + 16 : 96][order])


def test_a_matrix_that_does_not_consist_of_its_parts_is_refused(tmp_path: Path) -> None:
    config, stored = checkpoint(tmp_path, "phi3")
    name = f"{LAYER}self_attn.qkv_proj.weight"
    with pytest.raises(ModelError, match=r"qkv_proj\.weight has 127 rows instead of 128"):
        list(computed(config, name, stored[name][:-1]))
