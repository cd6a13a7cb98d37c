"""ModelConfig from config.json: what is read, what is refused by name."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from outrider.worker.checkpoints.config_file import MAX_JSON_BYTES, parse_config, read_config
from outrider.worker.errors import ModelError
from outrider.worker.host.json_members import MAX_MEMBERS
from outrider.worker.model.config import (
    Family,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    ModelConfig,
)
from tests.tiny_models import FAMILIES, write_tiny

PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "vocab_size": 512,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
WINDOW = {"use_sliding_window": True, "sliding_window": 16}
LONG = {
    "original_max_position_embeddings": 256,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 8},
}
KINDS = ["sliding_attention", "full_attention", "full_attention"]


def parsed(**fields: Any) -> ModelConfig:
    return parse_config(PLAIN | fields, "config.json")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_writes_is_read(tmp_path: Path, family: str) -> None:
    window = {"sliding_window": 16} if family == "mistral" else {}
    write_tiny(tmp_path, family, tie_word_embeddings=False, head_dim=32, **window)
    config, gemma = read_config(tmp_path), family == "gemma3_text"
    assert config.family is Family(family)
    assert (config.heads, config.kv_heads, config.layers) == (4, 2, 2)
    assert (config.head_dim, config.vocab, config.context) == (32, 512, 1024)
    assert config.rope_theta == (1e6 if gemma else 10000.0)
    assert config.tied is False
    assert config.end_ids == (256,)
    assert config.qkv_bias is (family == "qwen2")
    assert config.qk_norm is (family == "qwen3" or gemma)
    assert config.windows == {"mistral": (16, 16), "gemma3_text": (24, 0)}.get(family, ())
    assert config.window_rope_theta == (10000.0 if gemma else None)
    assert config.update_norms is gemma
    assert config.query_size == (24 if gemma else None)
    assert config.embedding_scale == (8.0 if gemma else 1.0)
    assert config.rotary_dim == (16 if family == "phi3" else None)


def test_fields_that_are_left_out_take_transformers_defaults() -> None:
    config = parsed()
    assert (config.kv_heads, config.head_dim, config.rope_theta) == (4, 16, 10000.0)
    assert (config.tied, config.bos_id, config.end_ids) == (False, None, ())
    assert parsed(model_type="qwen3").head_dim == 128
    assert parsed(model_type="mistral").windows == (4096, 4096)


@pytest.mark.parametrize(
    ("fields", "theta", "scaling"),
    [
        ({"rope_theta": 5e5}, 5e5, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, None),
        ({"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"type": "llama3"}}, 5e5, Llama3Scaling),
        (
            {"rope_parameters": LLAMA3 | {"rope_type": "llama3", "rope_theta": 7.0}},
            7.0,
            Llama3Scaling,
        ),
    ],
)
def test_rope_is_read_where_old_and_new_transformers_put_it(
    fields: dict[str, Any], theta: float, scaling: type | None
) -> None:
    config = parsed(**fields)
    assert config.rope_theta == theta
    expected = scaling and Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )
    assert config.rope_scaling == expected


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "'mixtral'"),
        ({"model_type": "qwen3_moe", "num_experts": 64}, "'qwen3_moe'"),
        ({"model_type": "gemma3"}, "'gemma3'"),
        ({"model_type": None}, "model_type: is missing"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor: 0"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor: is missing"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu'"),
        ({"attention_bias": True}, "attention_bias: True"),
        ({"mlp_bias": True}, "mlp_bias: True"),
        ({"quantization_config": {"quant_method": "hqq"}}, "hqq"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "x"]}, "layer_types"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types"),
        (
            {"model_type": "mistral", "layer_types": ["sliding_attention", "full_attention"]},
            "allowed: sliding_attention throughout",
        ),
        ({"model_type": "qwen2", **WINDOW, "max_window_layers": -1}, "max_window_layers: -1"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.2}, "partial_rotary_factor: 0.2"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5"),
        ({"model_type": "phi3", **LONG}, "short_factor: [1.0]"),
        ({"model_type": "gemma3_text", "hidden_activation": "silu"}, "hidden_activation: 'silu'"),
        ({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}, "softcapping: 30.0"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "attention: True"),
        ({"hidden_size": None}, "hidden_size: is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: '2'"),
        ({"num_hidden_layers": 10**30}, "allowed: an integer of at least 1 and at most 1024"),
        ({"hidden_size": 10**18}, "at most 2147483647"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3"),
        ({"head_dim": 15}, "head_dim: 15"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps: nan"),
        ({"eos_token_id": "end"}, "eos_token_id: 'end'"),
        ({"bos_token_id": 512}, "bos_token_id: 512"),
        ({"draft_vocab_ids": []}, "draft_vocab_ids"),
        ({"draft_vocab_share": 0.0}, "draft_vocab_share"),
        ({"draft_vocab_share": 1.1}, "draft_vocab_share"),
        ({"draft_vocab_ids": [1, 1]}, "draft_vocab_ids"),
        ({"draft_vocab_ids": [1, 512]}, "draft_vocab_ids"),
    ],
)
def test_what_would_run_wrong_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError) as caught:
        parsed(**fields)
    assert named in str(caught.value)
    assert "allowed: " in str(caught.value)


def test_gemma_3_is_read_as_older_transformers_wrote_it() -> None:
    config = parsed(
        model_type="gemma3_text",
        num_hidden_layers=7,
        rope_local_base_freq=500.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        rope_theta=1e5,
        sliding_window=512,
    )
    assert config.windows == (512,) * 5 + (0, 512)
    assert (config.rope_theta, config.window_rope_theta) == (1e5, 500.0)
    assert config.rope_scaling == LinearScaling(factor=8.0)
    assert (config.head_dim, config.query_size, config.tied) == (256, 256, True)


@pytest.mark.parametrize("name", ["longrope", "su"])
def test_phi_3_is_read_as_older_transformers_wrote_it(name: str) -> None:
    factors = {"short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
    config = parsed(
        model_type="phi3",
        partial_rotary_factor=0.75,
        original_max_position_embeddings=256,
        rope_scaling={"type": name, **factors},
    )
    assert (config.rotary_dim, config.windows) == (12, ())
    assert config.rope_scaling == LongScaling(
        short=(1.0,) * 6, long=(2.0,) * 6, original_context=256, amplitude=math.sqrt(1.25)
    )


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        (WINDOW | {"max_window_layers": 1}, (0, 16, 16)),
        (WINDOW | {"max_window_layers": 0}, (16, 16, 16)),
        (WINDOW, ()),
        (WINDOW | {"layer_types": KINDS}, (16, 0, 0)),
        (WINDOW | {"use_sliding_window": False, "max_window_layers": 1}, ()),
        (WINDOW | {"sliding_window": None, "max_window_layers": 1}, ()),
        ({"use_sliding_window": True, "max_window_layers": 1}, (0, 4096, 4096)),
    ],
)
def test_layers_of_qwen_have_the_windows_that_transformers_gives_them(
    family: str, fields: dict[str, Any], windows: tuple[int, ...]
) -> None:
    assert parsed(model_type=family, num_hidden_layers=3, **fields).windows == windows


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_family_is_told_the_known_ones(family: str) -> None:
    with pytest.raises(ModelError, match=rf"allowed: .*\b{family}\b"):
        parsed(model_type="mamba")


def test_end_tokens_of_both_files_count(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN | {"eos_token_id": 7}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 7]}))
    assert read_config(tmp_path).end_ids == (7, 9)


@pytest.mark.parametrize("given", [-1, [7, -1], [512, 7]])
def test_an_end_that_is_no_token_ends_nothing(given: object) -> None:
    assert parsed(eos_token_id=given).end_ids == ((7,) if isinstance(given, list) else ())


def test_a_borrowing_draft_takes_what_it_does_not_say_from_its_target(tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    fields = {k: v for k, v in PLAIN.items() if k != "max_position_embeddings"}
    write_tiny(target)
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(fields | {"draft_vocab_ids": [3, 1]}))
    config = read_config(draft, target)
    assert (config.context, config.end_ids) == (1024, (256,))
    assert (config.output_ids, config.outputs, config.tied) == ((3, 1), 2, False)
    with pytest.raises(ModelError, match="max_position_embeddings: is missing"):
        read_config(draft)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"a":' * 100_000])
def test_a_broken_config_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(tmp_path)


def test_members_of_a_file_are_counted_before_they_are_objects(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"a": [[]] * MAX_MEMBERS}))
    with pytest.raises(ModelError, match=rf"config\.json: \d+ members; at most {MAX_MEMBERS}"):
        read_config(tmp_path)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"config\.json: it is no file"):
        read_config(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ModelError, match=rf"config\.json: {MAX_JSON_BYTES + 1} bytes; at most"):
        read_config(tmp_path)
