"""A model of a few kilobytes, whose passes have the types of any model's, or of a GGUF file's.

Compiled code depends on types alone, so that it can be made before a model has been fetched. Leaves
what is compiled to `compilation`; its text means nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from outrider.worker.checkpoints.checkpoint import GGUF, WEIGHTS
from outrider.worker.checkpoints.config_file import parse_config
from outrider.worker.checkpoints.gguf_file import GgufModel, gguf_names
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.model.config import Family
from outrider.worker.model.stored_tensors import parts_of
from outrider.worker.model.tensor_names import LAYERS, expected_shapes

SIZES: dict[str, Any] = {
    "model_type": str(Family.LLAMA),
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
}
_METADATA = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
}
"""GGUF's name of each size."""


def write_small_model(folder: Path, like: GgufModel | None = None) -> PreparedModel:
    """Write one into an existing folder, of random floats, or of quants of the kinds that another
    model has; its tokens are bytes, and none ends an answer."""
    tied = like is None or like.tied
    (folder / "config.json").write_text(json.dumps(SIZES | {"tie_word_embeddings": tied}))
    prepared = PreparedModel("small", folder, folder, folder, revision="")
    shapes = expected_shapes(prepared.config())
    if like is None:
        random = np.random.default_rng(0)
        weights = {name: random.standard_normal(size, np.float32) for name, size in shapes.items()}
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    else:
        _write_gguf(folder / GGUF, shapes, like)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={text: at for at, text in enumerate(alphabet)}, merges=[])
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return prepared


def _write_gguf(file: Path, shapes: Mapping[str, tuple[int, ...]], like: GgufModel) -> None:
    """Write zeros in the kinds of another file: two of each layer's tensor, if it has as many."""
    kinds: dict[str, list[gguf.GGMLQuantizationType]] = {}
    config = parse_config(like.config_fields(), str(like.path))
    for name, tensor in like.tensors().items():
        for part in parts_of(config, name, like.shape(tensor)[0]):
            found = kinds.setdefault(_part(part.name), [])
            if tensor.kind not in found:
                found.append(tensor.kind)
    names = gguf_names(shapes, Family.LLAMA, SIZES["num_hidden_layers"])
    writer = gguf.GGUFWriter(file, Family.LLAMA)
    for field, key in _METADATA.items():
        writer.add_uint32(f"{Family.LLAMA}.{key}", SIZES[field])
    writer.add_layer_norm_rms_eps(SIZES["rms_norm_eps"])
    for name, shape in shapes.items():
        known = kinds.get(_part(name), [gguf.GGMLQuantizationType.F32])
        kind = known[name.startswith(f"{LAYERS}1.") * (len(known) - 1)]
        size = gguf.quant_shape_to_byte_shape(shape, kind)
        writer.add_tensor(names[name], np.zeros(size, np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _part(name: str) -> str:
    """Return the name of a tensor without the number of its layer."""
    return name.removeprefix(LAYERS).partition(".")[2] if name.startswith(LAYERS) else name
