"""How many layers a config.json has, and what each makes of positions: windows, rotation."""

import math
from typing import Any

from outrider.contract.settings import MAX_LAYERS
from outrider.worker.checkpoints.config_fields import ConfigFields
from outrider.worker.model.config import (
    Family,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    RopeScaling,
)

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers, as `layer_types` names them."""
WINDOW = 4096
"""What transformers takes when the file says nothing, but for families in which that is none."""
SWITCHED = (Family.QWEN2, Family.QWEN3)
"""Families whose windows `use_sliding_window` turns on, in the layers that are not the first."""
FIRST_LAYERS = 28
"""Layers without a window that transformers takes then, when the file says nothing."""
PATTERN = 6
"""Gemma 3: every sixth layer has no window."""
LONG = ("longrope", "su")
"""Names of LongRoPE, in new files and in old ones."""
THETAS = {Family.GEMMA3: 1e6}
"""Rotary bases that transformers takes when the file says nothing, if not 10000."""


def layer_fields(reader: ConfigFields, family: Family, head_dim: int) -> dict[str, Any]:
    """Return the fields of `ModelConfig` that tell of layers and positions; raises `ModelError`."""
    layers = reader.count("num_hidden_layers", most=MAX_LAYERS)
    rotary_dim = _rotary_dim(reader, family, head_dim)
    theta, scaling = _rope(reader, family, rotary_dim or head_dim)
    return {
        "layers": layers,
        "windows": _windows(reader, family, layers),
        "rope_theta": theta,
        "rope_scaling": scaling,
        "rotary_dim": rotary_dim,
        "window_rope_theta": _window_theta(reader, family),
    }


def _windows(reader: ConfigFields, family: Family, layers: int) -> tuple[int, ...]:
    """Return each layer's window, 0 for none; nothing where no layer has one."""
    window = _window(reader, family)
    usual = _usual_kinds(reader, family, layers) if window else [FULL] * layers
    known = (FULL, SLIDING) if window else (FULL,)
    kinds = reader.values.get("layer_types") or usual
    sound = isinstance(kinds, list) and len(kinds) == layers and all(x in known for x in kinds)
    reader.check(sound, "layer_types", kinds, f"{layers} times {' or '.join(known)}")
    if family not in (*SWITCHED, Family.GEMMA3):  # transformers does not look at the kinds
        reader.check(len(set(kinds)) == 1, "layer_types", kinds, f"{usual[0]} throughout")
        kinds = usual
    return tuple(window if kind == SLIDING else 0 for kind in kinds) if SLIDING in kinds else ()


def _rope(reader: ConfigFields, family: Family, size: int) -> tuple[float, RopeScaling | None]:
    """Read base and scaling of `size` numbers; both are in `rope_parameters` since transformers
    5."""
    inner = _parameters(reader, FULL)
    theta = inner.number("rope_theta", reader.number("rope_theta", THETAS.get(family, 10000.0)))
    kind = inner.values.get("rope_type", inner.values.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearScaling(factor=inner.number("factor"))
    if kind in LONG:
        return theta, _long_scaling(reader, inner, size // 2)
    inner.check(kind == "llama3", "rope_type", kind, "default, linear, llama3, longrope")
    return theta, Llama3Scaling(
        factor=inner.number("factor"),
        low_freq_factor=inner.number("low_freq_factor"),
        high_freq_factor=inner.number("high_freq_factor"),
        original_context=inner.count("original_max_position_embeddings"),
    )


def _rotary_dim(reader: ConfigFields, family: Family, head_dim: int) -> int | None:
    """Read how many numbers of a head turn, None for all."""
    name = "partial_rotary_factor"
    share = _parameters(reader, FULL).number(name, reader.number(name, 1.0))
    allowed = "a share of head_dim that is an even number" if family is Family.PHI3 else "1"
    size = int(head_dim * share)
    sound = 0 < size <= head_dim and size % 2 == 0 and (family is Family.PHI3 or share == 1)
    reader.check(sound, name, share, allowed)
    return None if size == head_dim else size


def _window_theta(reader: ConfigFields, family: Family) -> float | None:
    """Read the rotary base of layers with a window, None where it is that of all."""
    if family is not Family.GEMMA3:
        return None
    inner = _parameters(reader, SLIDING)
    kind = inner.values.get("rope_type", "default")
    inner.check(kind == "default", "rope_type", kind, "default")
    return inner.number("rope_theta", reader.number("rope_local_base_freq", 10000.0))


def _parameters(reader: ConfigFields, layers: str) -> ConfigFields:
    """Return the rotary parameters of a kind of layers, of which a file may have one set each; old
    files have those of layers without a window alone."""
    found = reader.values.get("rope_parameters") or {}
    if not found and layers == FULL:
        found = reader.values.get("rope_scaling") or {}
    reader.check(isinstance(found, dict), "rope_parameters", found, "an object")
    if FULL in found or SLIDING in found:
        found = found.get(layers) or {}
    return ConfigFields(found, f"{reader.where}: rope_parameters")


def _long_scaling(reader: ConfigFields, inner: ConfigFields, count: int) -> LongScaling:
    """Read what transformers' `_compute_longrope_parameters` does; Phi-3 has the first context
    beside the rotary parameters."""
    context, name = reader.count("max_position_embeddings"), "original_max_position_embeddings"
    original = reader.count(name, inner.values.get(name))
    ratio = inner.number("factor", context / original)
    amplitude = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1.0
    return LongScaling(
        short=inner.numbers("short_factor", count),
        long=inner.numbers("long_factor", count),
        original_context=original,
        amplitude=inner.number("attention_factor", amplitude),
    )


def _window(reader: ConfigFields, family: Family) -> int:
    """Return the window of the layers that have one, 0 where none has."""
    values, default = reader.values, None if family is Family.PHI3 else WINDOW
    off = family in SWITCHED and not values.get("use_sliding_window")
    if off or family is Family.LLAMA:
        return 0
    if family is not Family.GEMMA3 and values.get("sliding_window", default) is None:
        return 0
    return reader.count("sliding_window", WINDOW)


def _usual_kinds(reader: ConfigFields, family: Family, layers: int) -> list[str]:
    """Return the kinds of layers of a family with windows, where the file does not list them."""
    if family is Family.GEMMA3:
        pattern = reader.count("sliding_window_pattern", PATTERN)
        return [SLIDING if (layer + 1) % pattern else FULL for layer in range(layers)]
    first = reader.count("max_window_layers", FIRST_LAYERS, 0) if family in SWITCHED else 0
    return [SLIDING if layer >= first else FULL for layer in range(layers)]
