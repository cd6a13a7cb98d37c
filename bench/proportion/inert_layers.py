"""A deeper checkpoint of the same text.

    python -m bench.proportion.inert_layers --depth 8 --out FOLDER

Layers are added whose weights are random and whose projections back into the residual stream are
zero: a pass takes as long as one of a model so deep, and every logit stays as it is. Matrices of
added layers are stored with one byte a weight, the model's own tensors in float32.
"""

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from bench.sides.services import SERVICE
from outrider.cli.service.file import read_service
from outrider.contract.files import user_cache
from outrider.contract.settings import ModelSettings
from outrider.operator.spec import SpeculativeService
from outrider.worker.checkpoints.checkpoint import GGUF, WEIGHTS
from outrider.worker.checkpoints.config_file import parse_config, read_json
from outrider.worker.checkpoints.load import SCALE, load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.source import ModelSource
from outrider.worker.model.tensor_names import expected_shapes

INERT = ("o_proj.weight", "down_proj.weight")
"""Projections into the residual stream."""
SPREAD = 73.0
"""Standard deviation of the whole numbers from -127 to 127."""
CONFIG = "config.json"
NODES_AHEAD = {1: 24, 3: 64, 8: 96}
"""Nodes ahead by depth: a pass that takes longer leaves a draft time for more nodes (the demo's own
value for its own depth, the default for the deepest)."""
MAX_CONTEXT = 1024
"""So that KV of the deepest target fits beside that of the others."""

Stored = dict[str, NDArray[Any]]


def main() -> int:
    """Write one checkpoint and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--depth", type=int, required=True, help="times the target's layers")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    model = prepared_target(options.file)
    print(f"{deepen(model, options.depth, options.out) / 1e6:.0f} MB in {options.out}")
    return 0


def prepared_target(file: Path) -> PreparedModel:
    """Return the target of a service, as plain files."""
    uri = read_service(file).spec.target.model.source
    return prepare(ModelSettings(uri=uri), user_cache(), lambda stage, done, total: None)


def deepen(model: PreparedModel, depth: int, folder: Path) -> int:
    """Write a checkpoint with `depth` times the layers into `folder`; return its bytes."""
    fields = read_json(model.directory / CONFIG)
    layers = depth * fields["num_hidden_layers"]
    if "layer_types" in fields:
        fields["layer_types"] = fields["layer_types"][:1] * layers
    deeper = fields | {"num_hidden_layers": layers}
    folder.mkdir(parents=True, exist_ok=True)
    _copy_others((model.directory, model.tokenizer), folder)
    (folder / CONFIG).write_text(json.dumps(deeper, indent=2), encoding="utf-8")
    tensors: Stored = dict(load(model)[1])
    rng = np.random.default_rng(depth)
    for name, shape in expected_shapes(parse_config(deeper, str(folder / CONFIG))).items():
        if name not in tensors:
            tensors |= inert(name, shape, rng)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return sum(file.stat().st_size for file in folder.iterdir())


def inert(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Stored:
    """Return one tensor of an added layer, with its scales if it is a matrix."""
    if len(shape) == 1:
        value = np.zeros if name.endswith(".bias") else np.ones
        return {name: value(shape, np.float32)}
    if name.endswith(INERT):
        return {name: np.zeros(shape, np.int8), f"{name}{SCALE}": np.ones(shape[0], np.float32)}
    gain = np.float32(1 / (SPREAD * np.sqrt(shape[1])))
    return {
        name: rng.integers(-127, 128, shape, np.int8),
        f"{name}{SCALE}": np.full(shape[0], gain, np.float32),
    }


def freed_draft(source: Path, folder: Path) -> None:
    """Copy a draft's checkpoint without the name of the one file that its target may come from."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = read_json(source / CONFIG)
    fields.pop("target", None)
    for file in source.iterdir():
        if file.is_file() and file.name != CONFIG:
            shutil.copyfile(file, folder / file.name)
    (folder / CONFIG).write_text(json.dumps(fields, indent=2), encoding="utf-8")


def _copy_others(sources: tuple[Path, ...], folder: Path) -> None:
    """Copy the tokenizer and all else that is neither weights nor config."""
    for file in (file for source in sources for file in source.iterdir() if file.is_file()):
        weights = file.name.endswith((".safetensors", ".index.json", GGUF))
        if not weights and file.name != CONFIG:
            shutil.copyfile(file, folder / file.name)


@contextlib.contextmanager
def deeper(service: SpeculativeService, depth: int, options: argparse.Namespace) -> Any:
    """Yield the service with a target of another depth, and the bytes of the checkpoint made.

    The checkpoint is deleted afterwards unless `--keep` says otherwise.
    """
    if depth == 1:
        yield service, 0
        return
    folder = user_cache() / "bench" / f"depth-{depth}"
    assert service.spec.draft is not None
    try:
        size = deepen(prepared_target(options.file), depth, folder / "target")
        freed_draft(ModelSource.parse(service.spec.draft.model.source).resolve(), folder / "draft")
        print(f"{depth} times the depth: {size / 1e6:.0f} MB in {folder}", file=sys.stderr)
        yield with_models(service, folder / "target", folder / "draft"), size
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def with_models(service: SpeculativeService, target: Path, draft: Path) -> SpeculativeService:
    """Return the service with checkpoints in other folders."""
    spec = service.spec
    assert spec.draft is not None
    changed = {}
    for name, role, folder in (("target", spec.target, target), ("draft", spec.draft, draft)):
        model = role.model.model_copy(update={"uri": f"file://{folder}"})
        changed[name] = role.model_copy(update={"model": model})
    return service.model_copy(update={"spec": spec.model_copy(update=changed)})


if __name__ == "__main__":
    sys.exit(main())
