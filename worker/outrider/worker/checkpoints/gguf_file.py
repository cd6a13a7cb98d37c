"""A GGUF file read as Hugging Face would have written it: config and tensors.

Leaves quants to `gguf_blocks`, checking names and shapes to `load`, and the tokenizer to
`gguf_tokenizer`.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from outrider.worker.checkpoints.config_file import parse_config
from outrider.worker.checkpoints.gguf_blocks import READERS
from outrider.worker.checkpoints.gguf_header import GgufHeader, GgufTensor
from outrider.worker.checkpoints.gguf_rope import ROPE_TENSORS, rope_fields
from outrider.worker.checkpoints.gguf_tokenizer import rule_of
from outrider.worker.checkpoints.position_fields import PATTERN
from outrider.worker.errors import ModelError
from outrider.worker.model.config import Family
from outrider.worker.model.matrix import AsStored, Quantised, outputs_of
from outrider.worker.model.stored_tensors import is_norm, stored_names

_ENDINGS = (".weight", ".bias")
FAMILIES = {
    "llama": Family.LLAMA,
    "qwen2": Family.QWEN2,
    "qwen3": Family.QWEN3,
    "gemma3": Family.GEMMA3,
    "phi3": Family.PHI3,
}
"""Families by GGUF's name of their architecture; Mistral's is "llama", too."""
SAMPLING = {
    **{name: name for name in ("top_k", "top_p", "min_p")},
    "temperature": "temp",
    "repetition_penalty": "penalty_repeat",
}
"""Hugging Face's name of each sampling param, and GGUF's."""
HALVES = {
    gguf.GGMLQuantizationType.F16: np.dtype("<f2"),
    gguf.GGMLQuantizationType.BF16: np.dtype("<u2"),
}
"""Names in numpy of kinds of 16 bits, as `checkpoint` has them."""
LARGEST_GEMMA3 = 62
"""Layers of the one Gemma 3 whose scores are not divided by the root of a head's size."""


class GgufModel:
    """One open GGUF file of a dense model."""

    def __init__(self, path: Path) -> None:
        """Open and check `path`; raises `ModelError`."""
        self.path = path
        header = GgufHeader.read(path)
        self._metadata, self._tensors = header.metadata, header.tensors
        self.architecture = str(self.value("general.architecture"))
        self._check_architecture()

    @property
    def tied(self) -> bool:
        """True if the head is the embedding."""
        return "output.weight" not in self._tensors

    def config_fields(self) -> dict[str, Any]:
        """Return the fields that this model's `config.json` would hold; raises `ModelError`."""
        kind = self._family()
        heads = self._of("attention.head_count")
        width = self._of("embedding_length")
        head_dim = self._of("attention.key_length", width // heads)
        return {
            "architectures": [kind.architecture],
            "model_type": kind.value,
            "hidden_size": width,
            "intermediate_size": self._of("feed_forward_length"),
            "num_hidden_layers": self._of("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._of("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": self._of("context_length"),
            "rms_norm_eps": float(self._of("attention.layer_norm_rms_epsilon")),
            "rope_parameters": rope_fields(self, head_dim),
            "sliding_window": self._of("attention.sliding_window", 0) or None,
            **(self._gemma3_fields(width // heads, head_dim) if kind is Family.GEMMA3 else {}),
            "vocab_size": len(self._tensor("token_embd.weight").data),
            "tie_word_embeddings": self.tied,
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

    def tensors(self) -> dict[str, GgufTensor]:
        """Return each tensor by its Hugging Face name, unread; raises `ModelError`."""
        names = self._names()
        for name in self._tensors.keys() - names.keys() - ROPE_TENSORS:
            raise ModelError(f"{self.path}: unexpected tensor {name}")
        return {own: self._tensors[name] for name, own in names.items() if name in self._tensors}

    def grouped(self, tensor: GgufTensor) -> bool:
        """True for a matrix of quants that are kept in groups."""
        return tensor.kind in READERS and len(self.shape(tensor)) > 1

    def shape(self, tensor: GgufTensor) -> tuple[int, ...]:
        """Return the shape of its values."""
        return tuple(gguf.quant_shape_from_byte_shape(tensor.data.shape, tensor.kind))

    def matrix(self, tensor: GgufTensor) -> AsStored:
        """Return a tensor: quants and half precision where they lie, else float32."""
        if not self.grouped(tensor):
            less = self._family() is Family.GEMMA3 and is_norm(tensor.name)
            if tensor.kind in HALVES and not less:
                return self._unpermuted(tensor.name, tensor.data.view(HALVES[tensor.kind]))
            value = self._unpermuted(tensor.name, self._dequantised(tensor))
            return value - np.float32(1) if less else value
        outputs, inputs = self.shape(tensor)
        _, size = gguf.GGML_QUANT_SIZES[tensor.kind]
        blocks = tensor.data.reshape(outputs, -1, size)
        matrix = Quantised(blocks, int(tensor.kind), (outputs, inputs), READERS[tensor.kind])
        order = self._unpermuted(tensor.name, np.arange(outputs))
        return outputs_of(matrix, order)

    def check(self) -> None:
        """Raise `ModelError` for what cannot be served, by the header alone."""
        parse_config(self.config_fields(), str(self.path))
        rule_of(self)
        for tensor in {tensor.kind: tensor for tensor in self._tensors.values()}.values():
            _, size = gguf.GGML_QUANT_SIZES[tensor.kind]
            self._dequantised(replace(tensor, data=np.zeros((1, size), np.uint8)))

    def _check_architecture(self) -> None:
        experts = self._of("expert_count", 0)
        if self.architecture not in FAMILIES or experts:
            what = f"{self.architecture!r}" + (f" with {experts} experts" if experts else "")
            allowed = ", ".join(FAMILIES)
            raise ModelError(
                f"{self.path}: architecture {what} is not supported; allowed: dense {allowed}"
            )

    def _family(self) -> Family:
        """Return the family; GGUF calls Mistral "llama", only its window tells them apart."""
        if self.architecture == Family.LLAMA and self._of("attention.sliding_window", 0):
            return Family.MISTRAL
        return FAMILIES[self.architecture]

    def _gemma3_fields(self, share: int, head_dim: int) -> dict[str, Any]:
        """Return what Gemma 3 has besides; `share`: the width that falls to each head."""
        largest = self._of("block_count") == LARGEST_GEMMA3
        pattern = self._of("attention.sliding_window_pattern", PATTERN)
        return {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": share if largest else head_dim,
            "sliding_window_pattern": pattern,
            "attn_logit_softcapping": self._of("attn_logit_softcapping", None),
            "final_logit_softcapping": self._of("final_logit_softcapping", None),
        }

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

    def values_of(self, name: str) -> np.ndarray | None:
        """Return the values of a tensor, None where the file has none of that name."""
        return self._dequantised(self._tensors[name]) if name in self._tensors else None

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        return self._tensors[name]

    def _end_ids(self) -> list[int]:
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        found = [self.value(key, None) for key in keys]
        return list(dict.fromkeys(i for i in found if i is not None))

    def _dequantised(self, tensor: GgufTensor) -> np.ndarray:
        try:
            return tensor.dequantised()
        except NotImplementedError as error:
            raise ModelError(f"{self.path}: tensor {tensor.name}: {error}") from error

    def _names(self) -> dict[str, str]:
        """Return the Hugging Face names of such a model's tensors, by GGUF's."""
        config = parse_config(self.config_fields(), str(self.path))
        own = gguf_names(stored_names(config), self.architecture, config.layers)
        return {name: its_own for its_own, name in own.items()}

    def _unpermuted(self, name: str, value: np.ndarray) -> np.ndarray:
        """Undo the interleaving of rotary halves of q and k, which GGUF's "llama" has."""
        counts = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if self.architecture != Family.LLAMA or part not in counts:
            return value
        heads = int(self._of(counts[part], self._of("attention.head_count")))
        pairs = value.reshape(heads, -1, 2, *value.shape[1:])  # [heads, head_dim / 2, 2, in]
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)


def gguf_names(names: Iterable[str], architecture: str, layers: int) -> dict[str, str]:
    """Return GGUF's name of each tensor by its Hugging Face name."""
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], layers)
    return {name: str(known.get_name(name, _ENDINGS)) for name in names}
