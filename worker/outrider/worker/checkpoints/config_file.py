"""`ModelConfig` from the fields of a Hugging Face `config.json`.

Refuses by name what the forward pass would get wrong; leaves GGUF metadata to `gguf_file`, which
writes the same fields, and tensors to `load`.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.config_fields import ConfigFields
from outrider.worker.checkpoints.position_fields import layer_fields
from outrider.worker.checkpoints.quantisation import Quantisation
from outrider.worker.errors import ModelError
from outrider.worker.host.json_members import MAX_MEMBERS, members
from outrider.worker.model.config import Activation, Family, ModelConfig

MAX_JSON_BYTES = 32 << 20
"""Most bytes of one JSON file: the index of a thousand files of tensors has a few MiB."""
GENERATION_CONFIG = "generation_config.json"
_INHERITED = ("max_position_embeddings", "bos_token_id", "eos_token_id")
_HEAD_DIMS = {Family.QWEN3: 128, Family.GEMMA3: 256}
"""What transformers takes when the file says nothing, where that is no share of the width."""
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
    generation = directory / GENERATION_CONFIG
    ends = read_json(generation).get("eos_token_id") if generation.is_file() else None
    return parse_config(fields, str(directory / "config.json"), ends)


def parse_config(fields: Mapping[str, Any], where: str, more_ends: Any = None) -> ModelConfig:
    """Build the config from the fields of one config.json.

    `where` names the file in errors; `more_ends` is the generation config's `eos_token_id`. Raises
    `ModelError` that names the field, its value and what is allowed.
    """
    reader = ConfigFields(fields, where)
    family = _family(reader)
    _refuse_variants(reader, family)
    heads, hidden = reader.count("num_attention_heads"), reader.count("hidden_size")
    kv_heads = reader.count("num_key_value_heads", heads)
    head_dim = reader.count("head_dim", _HEAD_DIMS.get(family, hidden // heads))
    of_heads = f"a divisor of {heads} heads"
    reader.check(heads % kv_heads == 0, "num_key_value_heads", kv_heads, of_heads)
    reader.check(head_dim % 2 == 0, "head_dim", head_dim, "an even number")
    bos_ids, output_ids = reader.ids("bos_token_id"), _output_ids(reader)
    end_ids = (*reader.ends("eos_token_id"), *reader.ends("generation eos_token_id", more_ends))
    tied = bool(fields.get("tie_word_embeddings", family is Family.GEMMA3))
    share = reader.number("draft_vocab_share", 1.0)
    reader.check(share <= 1, "draft_vocab_share", share, "a number above 0, at most 1")
    return ModelConfig(
        family=family,
        hidden=hidden,
        ffn=reader.count("intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=reader.count("vocab_size"),
        context=reader.count("max_position_embeddings"),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        tied=tied and output_ids is None,
        bos_id=bos_ids[0] if bos_ids else None,
        end_ids=tuple(dict.fromkeys(end_ids)),
        output_ids=output_ids,
        output_share=share,
        **layer_fields(reader, family, head_dim),
        **_variant(reader, family),
    )


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raises `ModelError` naming it."""
    try:
        is_file, size = path.is_file(), path.stat().st_size
        if not is_file:  # a pipe would be read for ever
            raise ModelError(f"{path}: it is no file")
        if size > MAX_JSON_BYTES:
            raise ModelError(f"{path}: {size} bytes; at most {MAX_JSON_BYTES} are read")
        content = path.read_bytes()
        if (count := members(content)) > MAX_MEMBERS:
            raise ModelError(f"{path}: {count} members; at most {MAX_MEMBERS} are read")
        value = json.loads(content.decode())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from error
    except RecursionError:
        raise ModelError(f"{path}: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected an object, got {type(value).__name__}")
    return value


def _family(reader: ConfigFields) -> Family:
    kind: Any = reader.values.get("model_type")
    dense = not any(map(reader.values.get, _EXPERTS))
    reader.check(dense, "model_type", kind, f"dense models ({', '.join(Family)})")
    reader.check(kind in list(Family), "model_type", kind, ", ".join(Family))
    family = Family(kind)
    found = reader.values.get("architectures") or [family.architecture]
    allowed = ", ".join(known.architecture for known in Family)
    reader.check(found == [family.architecture], "architectures", found, allowed)
    return family


def _output_ids(reader: ConfigFields) -> tuple[int, ...] | None:
    """Read a draft's reduced vocabulary; None where it has the whole one."""
    name = "draft_vocab_ids"
    if reader.values.get(name) is None:
        return None
    ids = reader.ids(name)
    reader.check(0 < len(set(ids)) == len(ids), name, f"{len(ids)} ids", "at least one, none twice")
    return ids


def _variant(reader: ConfigFields, family: Family) -> dict[str, Any]:
    """Return the fields of what the layers of a family have, and others have not."""
    if family is not Family.GEMMA3:
        return {"qkv_bias": family is Family.QWEN2, "qk_norm": family is Family.QWEN3}
    return {
        "qk_norm": True,
        "update_norms": True,
        "query_size": reader.number("query_pre_attn_scalar", 256),
        "embedding_scale": math.sqrt(reader.count("hidden_size")),
        "activation": Activation.GELU_TANH,
    }


def _refuse_variants(reader: ConfigFields, family: Family) -> None:
    """Raise for options of these families that the forward pass does not have."""
    values, gemma = reader.values, family is Family.GEMMA3
    act, known = ("hidden_activation", "gelu_pytorch_tanh") if gemma else ("hidden_act", "silu")
    allowed: dict[str, tuple[object, ...]] = {
        act: (None, known),
        "attention_bias": (None, False) if family is not Family.QWEN2 else (None, False, True),
        "mlp_bias": (None, False),
        "attn_logit_softcapping": (None,),
        "final_logit_softcapping": (None,),
        "use_bidirectional_attention": (None, False),
    }
    for name, good in allowed.items():
        value = values.get(name)
        reader.check(value in good, name, value, " or ".join(repr(v) for v in good))
    Quantisation.of(values, reader.where)
