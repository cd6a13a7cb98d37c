"""A model of a few kilobytes with random weights, whose passes have the types of any model's.

Compiled code depends on types alone, so that it can be made before a model has been fetched. Leaves
what is compiled to `compilation`; its text means nothing.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from outrider.worker.checkpoints.checkpoint import WEIGHTS
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.model.config import Family
from outrider.worker.model.tensor_names import expected_shapes

SIZES = {
    "model_type": str(Family.LLAMA),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
}


def write_small_model(folder: Path) -> PreparedModel:
    """Write one into an existing folder; its tokens are bytes, and none ends an answer."""
    (folder / "config.json").write_text(json.dumps(SIZES))
    prepared = PreparedModel("small", folder, folder, folder, revision="")
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape, np.float32)
        for name, shape in expected_shapes(prepared.config()).items()
    }
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={text: at for at, text in enumerate(alphabet)}, merges=[])
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return prepared
