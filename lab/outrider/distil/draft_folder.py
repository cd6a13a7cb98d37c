"""The draft as a folder that a worker loads: int8 matrices with row scales, config, service.

Embedding and, where the target's are tied, head are the target's own and are not stored.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from outrider.distil.network import Draft
from outrider.distil.target import Target
from outrider.distil.whole_files import write_json, write_whole
from outrider.worker.checkpoints.checkpoint import WEIGHTS
from outrider.worker.checkpoints.config_file import read_json
from outrider.worker.checkpoints.load import SCALE
from outrider.worker.model.tensor_names import HEAD

DROPPED = ("layer_types", "torch_dtype", "dtype", "_name_or_path", "transformers_version")
"""Fields of the target's config that say nothing of its draft."""
SERVICE = "service.yaml"


def write_draft(
    folder: Path, draft: Draft, target: Target, begun: Mapping[str, Any], share: float
) -> None:
    """Write the folder; config.json, with which it is a draft, comes last. Raises `NotWritten`.

    `begun`: fields that say what it was before training; `share`: of the target's tokens, those
    that the draft can output.
    """
    tensors = {name: tensor.float().cpu().numpy() for name, tensor in draft.tensors().items()}
    if not target.config.tied:
        tensors[HEAD] = draft.head.float().cpu().numpy()
    stored = save(quantised(tensors), metadata={"format": "pt"})
    write_whole(folder / WEIGHTS, lambda opened: opened.write(stored))
    text = service(target, folder.absolute().name)
    write_whole(folder / SERVICE, lambda opened: opened.write(text.encode()))
    write_json(folder / "config.json", config_fields(draft, target, begun, share))


def quantised(tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
    """Return matrices as int8 with a float32 scale for each row; vectors as they are."""
    found: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            found[name] = np.ascontiguousarray(tensor)
            continue
        scale = np.maximum(np.abs(tensor).max(axis=1), 1e-8) / 127
        found[name] = np.clip(np.rint(tensor / scale[:, None]), -127, 127).astype(np.int8)
        found[name + SCALE] = scale.astype(np.float32)
    return found


def config_fields(
    draft: Draft, target: Target, begun: Mapping[str, Any], share: float
) -> dict[str, Any]:
    """Return the fields of config.json: the target's, and what the draft's own are."""
    fields = read_json(target.prepared.directory / "config.json")
    source = {"uri": target.uri, "sha256": target.sha256}
    if target.is_gguf:
        source["gguf_sha256"] = target.sha256
    ids = draft.config.output_ids
    assert ids is not None
    return {key: value for key, value in fields.items() if key not in DROPPED} | {
        "purpose": "draft model for speculative decoding, made by outrider distil",
        "num_hidden_layers": draft.config.layers,
        "eos_token_id": list(target.config.end_ids),
        "tie_word_embeddings": False,
        "storage": "int8 matrices, float32 row scale in <name>.scale; vectors float32",
        **begun,
        "target": source,
        "draft_vocab_size": len(ids),
        "draft_vocab_share": share,
        "draft_vocab_ids": list(ids),
    }


def service(target: Target, folder: str) -> str:
    """Return the YAML of a service of target and draft, to lie in the draft's folder."""
    words = re.sub(r"[^a-z0-9]+", "-", target.prepared.name.lower())
    name = words.strip("-")[:50].strip("-") or "distilled"
    draft = json.dumps(f"file://../{folder}")
    return f"""\
# Target and draft: outrider run -f {SERVICE} --prompt "Why is the sky blue?" --compare
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata:
  name: {name}
spec:
  target:
    model: {{uri: {json.dumps(target.uri)}}}
  draft:
    model: {{uri: {draft}, embeddingsFrom: Target}}
"""
