"""Writes a checkpoint of `tiny_models` as llama.cpp's converter would: one GGUF file.

Knows nothing of Outrider's reader.
"""

import json
import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from tests.tiny_models import END_ID, SPECIALS, TEMPLATE, byte_characters

_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA3_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_ARCHITECTURES = {"gemma3_text": "gemma3", "mistral": "llama"}
_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_tiny_gguf(
    checkpoint: Path,
    path: Path,
    quants: gguf.GGMLQuantizationType | None = None,
    experts: int = 0,
    sentencepiece: bool = False,
    **extra: np.ndarray,
) -> Path:
    """Writes `checkpoint` to `path`; returns it.

    `quants` is the kind of its matrices, Q8_0 or Q4_K; `sentencepiece` gives it another tokenizer,
    of that kind. `extra` adds tensors, with `__` for a dot in their names.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    kind = config["model_type"]
    writer = gguf.GGUFWriter(path, _ARCHITECTURES.get(kind, kind))
    _add_config(writer, config)
    if experts:
        writer.add_expert_count(experts)
    add_tokenizer = _add_sentencepiece if sentencepiece else _add_tokenizer
    add_tokenizer(writer, config["vocab_size"])
    for name, value in load_file(checkpoint / "model.safetensors").items():
        _add_tensor(writer, _gguf_name(name, kind), _converted(name, value, config), quants)
    for name, value in extra.items():
        writer.add_tensor(name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_config(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config["rope_parameters"]
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    whole = rope.get("full_attention", rope)
    writer.add_rope_freq_base(whole["rope_theta"])
    if whole["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(whole["factor"])
    if whole["rope_type"] == "longrope":
        _add_long_rope(writer, config)
    if config.get("sliding_window") and config["model_type"] != "llama":
        writer.add_sliding_window(config["sliding_window"])
    if "sliding_window_pattern" in config:
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_long_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope, first = config["rope_parameters"], config["original_max_position_embeddings"]
    ratio = config["max_position_embeddings"] / first
    writer.add_rope_scaling_orig_ctx_len(first)
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(ratio) / math.log(first)))
    for kind in ("short", "long"):
        factors = np.array(rope[f"{kind}_factor"], np.float32)
        writer.add_tensor(f"rope_factors_{kind}.weight", factors)


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    """The tokenizer of `tiny_models`, and one merge, since GGUF stores no empty lists."""
    tokens = [*byte_characters(), *SPECIALS, "ab"]
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(SPECIALS)
    kinds += [gguf.TokenType.NORMAL] + [gguf.TokenType.UNUSED] * (size - len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(len(tokens), size)])
    writer.add_token_types(kinds)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(END_ID)
    writer.add_chat_template(TEMPLATE)


def _add_sentencepiece(writer: gguf.GGUFWriter, size: int) -> None:
    """A tokenizer with bytes to fall back to, whose merges follow from its scores."""
    pieces = ["\u2581", "a", "b", "ab", "\u2581ab"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    kinds += [gguf.TokenType.NORMAL] * len(pieces)
    unused = size - len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(len(tokens), size)])
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces) + unused)])
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * unused)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _gguf_name(name: str, kind: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{ending}"
    names = _NAMES | (_GEMMA3_NAMES if kind == "gemma3_text" else {})
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{names[part]}.{ending}"


def _converted(name: str, value: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Interleaves the rotary halves of a Llama's q and k, and adds one to norms of Gemma 3, as
    llama.cpp's converter does."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    part = name.split(".")[-2]
    if config["model_type"] == "gemma3_text" and part.endswith("norm"):
        return value + np.float32(1)
    if config["model_type"] not in ("llama", "mistral") or part not in heads:
        return value
    halves = value.reshape(config[heads[part]], 2, -1, value.shape[1])  # [heads, 2, d / 2, in]
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(value.shape)


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    value: np.ndarray,
    kind: gguf.GGMLQuantizationType | None,
) -> None:
    if kind is None or value.ndim == 1:
        writer.add_tensor(name, value)
        return
    writer.add_tensor(name, quantise(value, kind), raw_dtype=kind)


def quantise(value: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Bytes of a matrix [outputs, bytes] of a kind that `write_tiny_gguf` takes."""
    if kind == gguf.GGMLQuantizationType.Q4_K:  # gguf reads it alone
        return _q4_k(value)
    return np.asarray(gguf.quantize(value, kind))


def _q4_k(value: np.ndarray) -> np.ndarray:
    """Blocks of 256 inputs, as llama.cpp's `block_q4_K` has them: two half-precision numbers, then
    eight steps and eight least values of six bits each that these multiply, then the quants."""
    groups = value.reshape(len(value), -1, 8, 32)
    least = np.maximum(-groups.min(axis=3), 0)
    steps = (groups.max(axis=3) + least) / 15
    (step, steps), (low, least) = _six_bits(steps), _six_bits(least)
    floor = (low.astype(np.float32) * least)[..., None]
    each = (step.astype(np.float32) * steps)[..., None]
    quants = np.clip(np.rint((groups + floor) / each), 0, 15).astype(np.uint8)
    high = [numbers[..., 4:] >> 4 << 6 | numbers[..., :4] for numbers in (steps, least)]
    last = steps[..., 4:] & 15 | (least[..., 4:] & 15) << 4
    pairs = quants[..., ::2, :] | quants[..., 1::2, :] << 4
    halves = [number.view(np.uint8) for number in (step, low)]
    parts = [*halves, *high, last, pairs.reshape(*pairs.shape[:2], 128)]
    return np.concatenate(parts, axis=2).reshape(len(value), -1)


def _six_bits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What eight numbers are multiples of, and how many times it each is: 1 to 63."""
    most = numbers.max(axis=2, keepdims=True)
    unit = np.maximum(most / 63, 1e-6).astype(np.float16)
    return unit, np.clip(np.rint(numbers / unit), 1, 63).astype(np.uint8)
