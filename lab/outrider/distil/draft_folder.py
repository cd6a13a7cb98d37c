"""The draft as a folder that a worker loads: int8 matrices with row scales, config, service.

An embedding and, where it is tied, a head of the target are not stored. A draft with those of
another model has them in its folder, and the tokenizer.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from outrider.distil.network import Draft
from outrider.distil.start import Start
from outrider.distil.target import Target
from outrider.distil.whole_files import write_json, write_whole
from outrider.worker.checkpoints.checkpoint import WEIGHTS
from outrider.worker.checkpoints.config_file import read_json
from outrider.worker.checkpoints.load import SCALE
from outrider.worker.model.tensor_names import EMBEDDING, HEAD

DROPPED = ("layer_types", "torch_dtype", "dtype", "_name_or_path", "transformers_version")
"""Fields of the target's config that say nothing of its draft."""
BEGUN = "initialised_from"
"""How fields begin that say what a draft was before training."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SERVICE = "service.yaml"


def write_draft(folder: Path, draft: Draft, target: Target, begun: Start, share: float) -> None:
    """Write the folder; config.json, with which it is a draft, comes last. Raises `NotWritten`.

    `begun`: what it was before training; `share`: of the target's tokens, those that the draft can
    output.
    """
    kept = draft.tensors()
    if not begun.borrows:
        kept[EMBEDDING] = draft.embedding
        for file in (target.prepared.tokenizer / name for name in TOKENIZER):
            if file.is_file():
                _copy(file, folder)
    if not (begun.borrows and target.config.tied):
        kept[HEAD] = draft.head
    tensors = {name: tensor.float().cpu().numpy() for name, tensor in kept.items()}
    stored = save(quantised(tensors), metadata={"format": "pt"})
    write_whole(folder / WEIGHTS, lambda opened: opened.write(stored))
    text = service(target, folder.absolute().name, begun.borrows)
    write_whole(folder / SERVICE, lambda opened: opened.write(text.encode()))
    write_json(folder / "config.json", config_fields(draft, target, begun, share))


def _copy(file: Path, folder: Path) -> None:
    content = file.read_bytes()
    write_whole(folder / file.name, lambda opened: opened.write(content))


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


def config_fields(draft: Draft, target: Target, begun: Start, share: float) -> dict[str, Any]:
    """Return the fields of config.json: those of the model that has its embedding, and its own."""
    model = target.prepared if begun.borrows else begun.model
    fields = read_json(model.directory / "config.json")
    source = {"uri": target.uri, "sha256": target.sha256}
    if target.is_gguf:
        source["gguf_sha256"] = target.sha256
    ids = draft.config.output_ids
    assert ids is not None
    kept = {
        key: value
        for key, value in fields.items()
        if key not in DROPPED and not key.startswith(BEGUN)
    }
    return kept | {
        "purpose": "draft model for speculative decoding, made by outrider distil",
        "num_hidden_layers": draft.config.layers,
        "eos_token_id": list(target.config.end_ids),
        "tie_word_embeddings": False,
        "storage": "int8 matrices, float32 row scale in <name>.scale; vectors float32",
        **begun.fields(),
        "target": source,
        "draft_vocab_size": len(ids),
        "draft_vocab_share": share,
        "draft_vocab_ids": list(ids),
    }


def service(target: Target, folder: str, borrows: bool) -> str:
    """Return the YAML of a service of target and draft, to lie in the draft's folder.

    `borrows`: the draft has no embedding of its own.
    """
    words = re.sub(r"[^a-z0-9]+", "-", target.prepared.name.lower())
    name = words.strip("-")[:50].strip("-") or "distilled"
    draft = json.dumps(f"file://../{folder}") + (", embeddingsFrom: Target" if borrows else "")
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
    model: {{uri: {draft}}}
"""
