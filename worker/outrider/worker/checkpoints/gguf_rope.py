"""Rotary parameters of a GGUF file, as a `config.json` would have them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from outrider.worker.checkpoints.position_fields import FULL, SLIDING
from outrider.worker.errors import ModelError
from outrider.worker.model.config import Llama3Scaling
from outrider.worker.model.rotary import frequencies_of, stretched

if TYPE_CHECKING:
    from outrider.worker.checkpoints.gguf_file import GgufModel

FREQUENCIES = "rope_freqs.weight"
SHORT, LONG = (f"rope_factors_{kind}.weight" for kind in ("short", "long"))
ROPE_TENSORS = {FREQUENCIES, SHORT, LONG}
"""Tensors that tell the scaling of rotary positions."""
LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The three numbers that every Llama 3 release shares; GGUF keeps only their effect."""


def rope_fields(model: "GgufModel", head_dim: int) -> dict[str, Any]:
    """Return `rope_parameters`; raises `ModelError` for a scaling that the pass does not have."""
    theta = float(_of(model, "freq_base", 10000.0))
    turning = _of(model, "dimension_count", head_dim) / head_dim
    partial = {} if turning == 1 else {"partial_rotary_factor": turning}
    whole = {"rope_theta": theta, **partial, **_scaling(model, theta, head_dim)}
    if model.architecture != "gemma3":
        return whole
    local = float(_of(model, "freq_base_swa", 10000.0))
    return {FULL: whole, SLIDING: {"rope_theta": local, "rope_type": "default"}}


def _scaling(model: "GgufModel", theta: float, head_dim: int) -> dict[str, Any]:
    kind = _of(model, "scaling.type", "none")
    if kind == "linear":
        return {"rope_type": kind, "factor": float(_of(model, "scaling.factor"))}
    if kind != "none":
        raise ModelError(
            f"{model.path}: rope scaling {kind!r} is not supported; allowed: none, linear, llama3"
        )
    short, long = model.values_of(SHORT), model.values_of(LONG)
    if short is not None and long is not None:
        return _long_scaling(model, short, long)
    if (stored := model.values_of(FREQUENCIES)) is None:
        return {"rope_type": "default"}
    scaled = {"rope_type": "llama3", "factor": float(stored.max()), **LLAMA3}
    if not np.allclose(
        stored, llama3_divisors(scaled | {"rope_theta": theta}, head_dim), rtol=1e-3
    ):
        raise ModelError(f"{model.path}: {FREQUENCIES} is not the scaling of Llama 3 with {LLAMA3}")
    return scaled


def _long_scaling(model: "GgufModel", short: np.ndarray, long: np.ndarray) -> dict[str, Any]:
    fields = {
        "rope_type": "longrope",
        "short_factor": short.tolist(),
        "long_factor": long.tolist(),
        "original_max_position_embeddings": _of(model, "scaling.original_context_length"),
    }
    amplitude = _of(model, "scaling.attn_factor", None)
    return fields if amplitude is None else fields | {"attention_factor": float(amplitude)}


def _of(model: "GgufModel", key: str, *default: Any) -> Any:
    return model.value(f"{model.architecture}.rope.{key}", *default)


def llama3_divisors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """Return the divisors of Llama 3's rotary frequencies, [head_dim / 2]; 1 changes nothing."""
    scaling = Llama3Scaling(
        factor=rope["factor"],
        low_freq_factor=rope["low_freq_factor"],
        high_freq_factor=rope["high_freq_factor"],
        original_context=rope["original_max_position_embeddings"],
    )
    frequencies = frequencies_of(rope["rope_theta"], head_dim)
    return np.asarray(frequencies / stretched(frequencies, scaling))
