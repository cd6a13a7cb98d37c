"""`ModelConfig` from the fields of a Hugging Face `config.json`.

Refuses by name what the forward pass would get wrong; leaves GGUF metadata to `gguf_file`, which
writes the same fields, and tensors to `load`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.worker.errors import ModelError
from outrider.worker.model.config import Family, ModelConfig, RopeScaling

ARCHITECTURES = {
    Family.LLAMA: "LlamaForCausalLM",
    Family.MISTRAL: "MistralForCausalLM",
    Family.QWEN2: "Qwen2ForCausalLM",
    Family.QWEN3: "Qwen3ForCausalLM",
}
MISTRAL_WINDOW = 4096
"""What transformers' `MistralConfig` takes when the file says nothing."""
_INHERITED = ("max_position_embeddings", "bos_token_id", "eos_token_id")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_config(directory: Path, embeddings: Path | None = None) -> ModelConfig:
    """Read `directory`'s config.json (and generation_config.json, for end tokens).

    With `embeddings`, the folder of the model whose embedding is borrowed, the context length and
    the begin and end tokens default to that model's, and the head to the embedding. Raises
    `ModelError`.
    """
    fields = read_json(directory / "config.json")
    if embeddings is not None:
        lender = read_config(embeddings)
        inherited = (lender.context, lender.bos_id, list(lender.end_ids))
        fields = (
            dict(zip(_INHERITED, inherited, strict=True)) | {"tie_word_embeddings": True} | fields
        )
    generation = directory / "generation_config.json"
    ends = read_json(generation).get("eos_token_id") if generation.is_file() else None
    return parse_config(fields, str(directory / "config.json"), ends)


def parse_config(fields: Mapping[str, Any], where: str, more_ends: Any = None) -> ModelConfig:
    """Build the config from the fields of one config.json.

    `where` names the file in errors; `more_ends` is the generation config's `eos_token_id`. Raises
    `ModelError` that names the field, its value and what is allowed.
    """
    reader = _Fields(fields, where)
    family = _family(reader)
    _refuse_variants(reader, family)
    output_ids = _output_ids(reader)
    heads = reader.count("num_attention_heads")
    hidden = reader.count("hidden_size")
    context = reader.count("max_position_embeddings")
    theta, scaling = _rope(reader)
    config = ModelConfig(
        family=family,
        hidden=hidden,
        ffn=reader.count("intermediate_size"),
        layers=reader.count("num_hidden_layers"),
        heads=heads,
        kv_heads=reader.count("num_key_value_heads", heads),
        head_dim=reader.count("head_dim", hidden // heads),
        vocab=reader.count("vocab_size"),
        context=context,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        qkv_bias=family is Family.QWEN2,
        qk_norm=family is Family.QWEN3,
        tied=output_ids is None and bool(fields.get("tie_word_embeddings", False)),
        sliding_window=_window(reader, family, context),
        bos_id=reader.ids("bos_token_id")[0] if reader.ids("bos_token_id") else None,
        end_ids=_end_ids(reader, more_ends),
        output_ids=output_ids,
        output_share=_output_share(reader),
    )
    _check_shapes(config, reader)
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raises `ModelError` naming it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected an object, got {type(value).__name__}")
    return value


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to a config's fields; a missing or null field takes the default."""

    values: Mapping[str, Any]
    where: str

    def refuse(self, name: str, value: object, allowed: str) -> ModelError:
        fault = "is missing" if value is None else f"{value!r} is not supported"
        return ModelError(f"{self.where}: {name}: {fault}; allowed: {allowed}")

    def count(self, name: str, default: int | None = None) -> int:
        value: Any = self.values.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise self.refuse(name, value, "an integer of at least 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value: Any = self.values.get(name)
        value = default if value is None else value
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.refuse(name, value, "a finite number above 0")
        return float(value)

    def ids(self, name: str) -> tuple[int, ...]:
        """Read a token id, or a list of them, or nothing."""
        return self.id_list(name, self.values.get(name))

    def id_list(self, name: str, value: Any) -> tuple[int, ...]:
        listed = [] if value is None else value if isinstance(value, list) else [value]
        size = self.count("vocab_size")
        if any(type(i) is not int or not 0 <= i < size for i in listed):
            raise self.refuse(name, value, f"token ids in [0, {size})")
        return tuple(listed)


def _family(reader: _Fields) -> Family:
    kind = reader.values.get("model_type")
    for name in _EXPERTS:
        if reader.values.get(name):
            raise reader.refuse("model_type", kind, f"dense models ({', '.join(Family)})")
    if kind not in list(Family):
        raise reader.refuse("model_type", kind, ", ".join(Family))
    family = Family(kind)
    architectures = reader.values.get("architectures") or [ARCHITECTURES[family]]
    if architectures != [ARCHITECTURES[family]]:
        raise reader.refuse("architectures", architectures, ", ".join(ARCHITECTURES.values()))
    return family


def _refuse_variants(reader: _Fields, family: Family) -> None:
    """Raise for options of these families that the forward pass does not have."""
    values = reader.values
    allowed: dict[str, tuple[object, ...]] = {
        "hidden_act": (None, "silu"),
        "attention_bias": (None, False) if family is not Family.QWEN2 else (None, False, True),
        "mlp_bias": (None, False),
        "quantization_config": (None,),
        "use_sliding_window": (None, False),
        "partial_rotary_factor": (None, 1, 1.0),
    }
    for name, good in allowed.items():
        if values.get(name) not in good:
            raise reader.refuse(name, values[name], " or ".join(repr(v) for v in good))
    kinds = (
        {"full_attention", "sliding_attention"} if family is Family.MISTRAL else {"full_attention"}
    )
    odd = set(values.get("layer_types") or ()) - kinds
    if odd or len(set(values.get("layer_types") or ())) > 1:
        raise reader.refuse("layer_types", values["layer_types"], "full_attention throughout")


def _rope(reader: _Fields) -> tuple[float, RopeScaling | None]:
    """Read base and scaling; both are in `rope_parameters` since transformers 5."""
    found = reader.values.get("rope_parameters") or reader.values.get("rope_scaling") or {}
    if not isinstance(found, dict):
        raise reader.refuse("rope_parameters", found, "an object")
    inner = _Fields(found, f"{reader.where}: rope_parameters")
    theta = inner.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise inner.refuse("rope_type", kind, "default, llama3")
    return theta, RopeScaling(
        factor=inner.number("factor"),
        low_freq_factor=inner.number("low_freq_factor"),
        high_freq_factor=inner.number("high_freq_factor"),
        original_context=inner.count("original_max_position_embeddings"),
    )


def _window(reader: _Fields, family: Family, context: int) -> int | None:
    if family is not Family.MISTRAL or reader.values.get("sliding_window", 0) is None:
        return None
    window = reader.count("sliding_window", MISTRAL_WINDOW)
    return window if window < context else None


def _end_ids(reader: _Fields, more: Any) -> tuple[int, ...]:
    ends = (*reader.ids("eos_token_id"), *reader.id_list("generation eos_token_id", more))
    return tuple(dict.fromkeys(ends))


def _output_ids(reader: _Fields) -> tuple[int, ...] | None:
    if reader.values.get("draft_vocab_ids") is None:
        return None
    ids = reader.ids("draft_vocab_ids")
    if not ids or len(set(ids)) != len(ids):
        raise reader.refuse("draft_vocab_ids", f"{len(ids)} ids", "at least one, none twice")
    return ids


def _output_share(reader: _Fields) -> float:
    share = reader.number("draft_vocab_share", 1.0)
    if share > 1:
        raise reader.refuse("draft_vocab_share", share, "a number above 0, at most 1")
    return share


def _check_shapes(config: ModelConfig, reader: _Fields) -> None:
    if config.heads % config.kv_heads:
        raise reader.refuse(
            "num_key_value_heads", config.kv_heads, f"a divisor of {config.heads} heads"
        )
    if config.head_dim % 2:
        raise reader.refuse("head_dim", config.head_dim, "an even number")
