"""A GGUF file read as Hugging Face would have written it: config and float32 tensors.

Leaves dequantising a block to the `gguf` package, checking names and shapes to `load`, and the
tokenizer to `gguf_tokenizer`.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from outrider.worker.checkpoints.config_file import parse_config
from outrider.worker.checkpoints.gguf_header import GgufHeader, GgufTensor
from outrider.worker.checkpoints.gguf_tokenizer import rule_of
from outrider.worker.errors import ModelError
from outrider.worker.model.config import Family, RopeScaling
from outrider.worker.model.rotary import frequencies_of, stretched
from outrider.worker.model.tensor_names import expected_shapes

_FREQUENCIES = "rope_freqs.weight"
_ENDINGS = (".weight", ".bias")
_ALLOWED = (Family.LLAMA, Family.QWEN2, Family.QWEN3)
SAMPLING = {
    **{name: name for name in ("top_k", "top_p", "min_p")},
    "temperature": "temp",
    "repetition_penalty": "penalty_repeat",
}
"""Hugging Face's name of each sampling param, and GGUF's."""
LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The three numbers that every Llama 3 release shares; GGUF keeps only their effect."""


class GgufModel:
    """One open GGUF file of a dense Llama-family model."""

    def __init__(self, path: Path) -> None:
        """Open and check `path`; raises `ModelError`."""
        self.path = path
        header = GgufHeader.read(path)
        self._metadata, self._tensors = header.metadata, header.tensors
        self.architecture = str(self.value("general.architecture"))
        self._check_architecture()

    def __len__(self) -> int:
        """Return the number of tensors `tensors` yields."""
        return len(self._tensors) - (_FREQUENCIES in self._tensors)

    def config_fields(self) -> dict[str, Any]:
        """Return the fields that this model's `config.json` would hold; raises `ModelError`."""
        kind = self._family()
        heads = self._of("attention.head_count")
        width = self._of("embedding_length")
        head_dim = self._of(
            "attention.key_length", self._of("rope.dimension_count", width // heads)
        )
        return {
            "architectures": [kind.architecture],
            "model_type": kind.value,
            "hidden_act": "silu",
            "hidden_size": width,
            "intermediate_size": self._of("feed_forward_length"),
            "num_hidden_layers": self._of("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._of("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": self._of("context_length"),
            "rms_norm_eps": float(self._of("attention.layer_norm_rms_epsilon")),
            "rope_parameters": self._rope(head_dim),
            "sliding_window": self._of("attention.sliding_window", 0) or None,
            "vocab_size": len(self._tensor("token_embd.weight").data),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "bos_token_id": self.value("tokenizer.ggml.bos_token_id", None),
            "eos_token_id": self._end_ids(),
            "dtype": "float32",
        }

    def generation_fields(self) -> dict[str, Any]:
        """Return the fields that this model's `generation_config.json` would hold."""
        found = {
            name: self.value(f"general.sampling.{key}", None) for name, key in SAMPLING.items()
        }
        return {name: value for name, value in found.items() if value is not None}

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield Hugging Face name and float32 values of each tensor, dequantised one at a time."""
        names = self._names()
        for name, tensor in self._tensors.items():
            if name == _FREQUENCIES:
                continue
            if name not in names:
                raise ModelError(f"{self.path}: unexpected tensor {name}")
            yield names[name], self._unpermuted(name, self._dequantised(tensor))

    def check(self) -> None:
        """Raise `ModelError` for what cannot be served, by the header alone."""
        parse_config(self.config_fields(), str(self.path))
        rule_of(self)
        for tensor in {tensor.kind: tensor for tensor in self._tensors.values()}.values():
            _, size = gguf.GGML_QUANT_SIZES[tensor.kind]
            self._dequantised(replace(tensor, data=np.zeros((1, size), np.uint8)))

    def _check_architecture(self) -> None:
        experts = self._of("expert_count", 0)
        if self.architecture not in _ALLOWED or experts:
            what = f"{self.architecture!r}" + (f" with {experts} experts" if experts else "")
            allowed = ", ".join(_ALLOWED)
            raise ModelError(
                f"{self.path}: architecture {what} is not supported; allowed: dense {allowed}"
            )

    def _family(self) -> Family:
        """Return the family; GGUF calls Mistral "llama", only its window tells them apart."""
        if self.architecture == Family.LLAMA and self._of("attention.sliding_window", 0):
            return Family.MISTRAL
        return Family(self.architecture)

    def value(self, key: str, *default: Any) -> Any:
        """Return the value of a key; raises `ModelError` where it is missing without default."""
        if key in self._metadata:
            return self._metadata[key]
        if default:
            return default[0]
        raise ModelError(f"{self.path}: metadata {key} is missing")

    def _of(self, key: str, *default: Any) -> Any:
        """Return a value under the architecture's own prefix."""
        return self.value(f"{self.architecture}.{key}", *default)

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        return self._tensors[name]

    def _end_ids(self) -> list[int]:
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        found = [self.value(key, None) for key in keys]
        return list(dict.fromkeys(i for i in found if i is not None))

    def _rope(self, head_dim: int) -> dict[str, Any]:
        kind = self._of("rope.scaling.type", "none")
        if kind != "none":
            raise ModelError(
                f"{self.path}: rope scaling {kind!r} is not supported; allowed: none, llama3"
            )
        theta = float(self._of("rope.freq_base", 10000.0))
        plain = {"rope_type": "default", "rope_theta": theta}
        if _FREQUENCIES not in self._tensors:
            return plain
        stored = self._dequantised(self._tensors[_FREQUENCIES])  # [head_dim / 2]
        scaled = {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": float(stored.max()),
            **LLAMA3,
        }
        if not np.allclose(stored, llama3_divisors(scaled, head_dim), rtol=1e-3):
            raise ModelError(
                f"{self.path}: {_FREQUENCIES} is not the scaling of Llama 3 with {LLAMA3}"
            )
        return scaled

    def _dequantised(self, tensor: GgufTensor) -> np.ndarray:
        try:
            return tensor.dequantised()
        except NotImplementedError as error:
            raise ModelError(f"{self.path}: tensor {tensor.name}: {error}") from error

    def _names(self) -> dict[str, str]:
        """Return the Hugging Face names of such a model's tensors, by GGUF's."""
        config = parse_config(self.config_fields(), str(self.path))
        known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[self.architecture.upper()], config.layers)
        return {known.get_name(name, _ENDINGS): name for name in expected_shapes(config)}

    def _unpermuted(self, name: str, value: np.ndarray) -> np.ndarray:
        """Undo the interleaving of rotary halves of q and k, which GGUF's "llama" has."""
        counts = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if self.architecture != Family.LLAMA or part not in counts:
            return value
        heads = self._of(counts[part], self._of("attention.head_count"))
        pairs = value.reshape(heads, -1, 2, *value.shape[1:])  # [heads, head_dim / 2, 2, in]
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)


def llama3_divisors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """Return the divisors of Llama 3's rotary frequencies, [head_dim / 2]; 1 changes nothing."""
    scaling = RopeScaling(
        factor=rope["factor"],
        low_freq_factor=rope["low_freq_factor"],
        high_freq_factor=rope["high_freq_factor"],
        original_context=rope["original_max_position_embeddings"],
    )
    frequencies = frequencies_of(rope["rope_theta"], head_dim)
    return np.asarray(frequencies / stretched(frequencies, scaling))
