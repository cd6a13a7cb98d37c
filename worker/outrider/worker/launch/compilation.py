"""`python -m outrider.worker compile`: compile what a worker's engine runs, before it has a model.

The engine is built and warmed up as ever, with a small model in place of the real ones. So that
several of these processes share the work, one with a draft begins with what lies between passes,
and with the passes that the others leave for later. What is on disk then is not compiled again.
Leaves when it is worth it to the command line, and the cache to `outrider.kernels.jit.compiled`.
"""

import dataclasses
import tempfile
from pathlib import Path

from outrider.contract.settings import Dtype, ModelSettings, WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.numeric_path import CHOSEN, admitted, worth_timing
from outrider.worker.costs.path_timing import samples
from outrider.worker.engine.transport import ThreadTransport
from outrider.worker.host.device import torch_device
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.run import build_engine
from outrider.worker.launch.small_model import write_small_model
from outrider.worker.launch.without_model import run_schedulers

LIKELY = Dtype.INT8
"""What AUTO takes wherever passes are limited by memory. The loops around passes are compiled for
this one; where another is taken, they are compiled when its engine starts."""
THREADS = 2
"""Of passes: one that helps is compiled, too."""


def main(settings: WorkerSettings) -> int:
    """Compile for an engine with these settings on one rank of a CPU; for others do nothing."""
    if torch_device(settings.device) is None and settings.ranks == 1:
        with tempfile.TemporaryDirectory(prefix="outrider-") as name:
            compile_engine(settings, write_small_model(Path(name)))
    return 0


def compile_engine(settings: WorkerSettings, small: PreparedModel) -> None:
    """Compile by running schedulers, passes and an engine of `small` models."""
    if settings.has_draft:
        run_schedulers(settings, small.config())
    if paths := passes_of(settings):
        with samples(*load(small), paths, THREADS) as models:
            admitted(models)
    settings = dataclasses.replace(
        settings,
        model=decided(settings.model),
        colocated=settings.colocated and decided(settings.colocated),
        threads=1,
        max_context=None,
        kv_bytes=None,
    )
    colocated = small if settings.colocated is not None else None
    both = Models(small, colocated, small.config().vocab)
    build_engine(settings, both, ThreadTransport(lambda _: None))


def passes_of(settings: WorkerSettings) -> list[NumericPath]:
    """Return the paths whose passes are compiled first: of those that AUTO compares for all but
    narrow models, a target alone takes the likely one, and a draft or who has one the others."""
    named = {model.dtype for model in (settings.model, settings.colocated) if model is not None}
    if Dtype.AUTO not in named:
        return [NumericPath(dtype) for dtype in named]
    compared = worth_timing(map(kind_of, CHOSEN))
    return [path for path in compared if (path == NumericPath(LIKELY)) is not settings.has_draft]


def decided(model: ModelSettings) -> ModelSettings:
    """Return the settings of a model with the likely path in place of AUTO."""
    return dataclasses.replace(model, dtype=LIKELY) if model.dtype is Dtype.AUTO else model
