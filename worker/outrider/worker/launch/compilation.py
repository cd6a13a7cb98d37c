"""`python -m outrider.worker compile`: compile what a worker's engine runs, before it has a model.

The engine is built and warmed up as ever, with a small model in place of the real ones. So that
several of these processes share the work, one with a draft begins with what lies between passes,
and with the passes that the others leave for later. What is on disk then is not compiled again.
Leaves when it is worth it to the command line, and the cache to `outrider.kernels.jit.compiled`.
"""

import contextlib
import dataclasses
import tempfile
from pathlib import Path

from outrider.contract.settings import Dtype, ModelSettings, WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
from outrider.worker.checkpoints.gguf_file import GgufModel
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.source import ModelSource, Scheme
from outrider.worker.costs.numeric_path import CHOSEN, admitted, worth_timing
from outrider.worker.costs.path_timing import samples
from outrider.worker.engine.transport import ThreadTransport
from outrider.worker.errors import ModelError
from outrider.worker.host.device import torch_device
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.run import build_engine
from outrider.worker.launch.small_model import write_small_model
from outrider.worker.launch.without_model import run_schedulers

LIKELY = Dtype.INT8
"""What AUTO takes wherever passes are limited by memory. The loops around passes are compiled for
this one; where another is taken, they are compiled when its engine starts."""
THREADS = 2
"""Threads of passes: one that helps is compiled, too."""


def main(settings: WorkerSettings) -> int:
    """Compile for an engine with these settings on one rank of a CPU; for others do nothing."""
    if torch_device(settings.device) is None and settings.ranks == 1:
        with tempfile.TemporaryDirectory(prefix="outrider-") as name:
            compile_engine(settings, Path(name))
    return 0


def compile_engine(settings: WorkerSettings, folder: Path) -> None:
    """Compile by running schedulers, passes and an engine of small models in an empty folder."""
    models = [settings.model, *filter(None, [settings.colocated])]
    small = [small_of(model, folder / str(number)) for number, model in enumerate(models)]
    if settings.has_draft:
        run_schedulers(settings, small[0].config())
    if paths := passes_of(settings, small[0]):
        weights = CheckpointTensors(small[0])
        with samples(small[0].config(), weights, paths, THREADS) as timed:
            admitted(timed)
    decided_models = map(decided, models, small)
    settings = dataclasses.replace(
        settings,
        model=next(decided_models),
        colocated=next(decided_models, None),
        threads=1,
        max_context=None,
        kv_bytes=None,
    )
    both = Models(small[0], small[1] if len(small) > 1 else None, small[0].config().vocab)
    build_engine(settings, both, ThreadTransport(lambda _: None))


def small_of(model: ModelSettings, folder: Path) -> PreparedModel:
    """Write a small model with the kinds of quants of a model that is a GGUF file here, with floats
    for any other; and one that lends it the embedding, if one does."""
    small = _small(model.uri, folder)
    if model.embeddings_from is None:
        return small
    lender = _small(model.embeddings_from, folder / "lender")
    return dataclasses.replace(small, embeddings=lender.directory)


def _small(uri: str, folder: Path) -> PreparedModel:
    folder.mkdir()
    source = ModelSource.parse(uri)
    like = None
    if source.scheme is not Scheme.HF:
        with contextlib.suppress(ModelError):  # said where the model itself is prepared
            path = source.resolve()
            like = GgufModel(path) if path.is_file() else None
    return write_small_model(folder, like)


def passes_of(settings: WorkerSettings, small: PreparedModel) -> list[NumericPath]:
    """Return the paths whose passes are compiled first: of those that AUTO compares for all but
    narrow models, a target alone takes the likely one, and a draft or who has one the others.
    Quants in groups leave AUTO no choice."""
    path = CheckpointTensors(small).path
    if settings.model.dtype is Dtype.AUTO and path is not None:
        return [] if settings.has_draft else [path]
    named = {model.dtype for model in (settings.model, settings.colocated) if model is not None}
    if Dtype.AUTO not in named:
        return [NumericPath(dtype) for dtype in named]
    compared = worth_timing(map(kind_of, CHOSEN))
    return [path for path in compared if (path == NumericPath(LIKELY)) is not settings.has_draft]


def decided(model: ModelSettings, small: PreparedModel) -> ModelSettings:
    """Return the settings of a model with the likely path in place of AUTO, unless its quants
    decide on that."""
    asked = model.dtype is Dtype.AUTO and CheckpointTensors(small).path is None
    return dataclasses.replace(model, dtype=LIKELY) if asked else model
