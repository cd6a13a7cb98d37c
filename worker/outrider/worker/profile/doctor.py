"""`python -m outrider.worker doctor`: what this machine's processor computes, and how fast.

Probes every numeric path on made-up weights in the shape of a small model. Prints progress as JSON
lines and one JSON object at the end. Leaves what follows from it to the command line.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract import processors
from outrider.contract.settings import Role, SettingsError
from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
from outrider.kernels.jit import isa
from outrider.kernels.jit.compiled import at_first_compilation
from outrider.worker.costs.numeric_path import CHOSEN, choose, compared, independent_rows
from outrider.worker.costs.path_timing import LAYERS, mean_pass, measured_curves, samples
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.model.tensor_names import expected_shapes
from outrider.worker.profile.command import print_json

MODEL = "SmolLM2-135M"
SHAPE = ModelConfig(
    family=Family.LLAMA,
    hidden=576,
    ffn=1536,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    norm_eps=1e-5,
    rope_theta=100_000.0,
)
"""Shape of `MODEL`."""
STEPS = 2
"""Probing, and timing passes."""


def main(shape: ModelConfig = SHAPE) -> int:
    """Print what was found, or an object with the key `error`."""
    try:
        print_json(stage="probing numeric types", done=0, total=STEPS)
        with at_first_compilation(say_compiling):
            found = findings(shape)
        print_json(**found)
    except SettingsError as error:  # of the instruction set that was asked for by name
        print_json(error=str(error))
        return 1
    return 0


def say_compiling() -> None:
    """Print the stage in which kernels are compiled."""
    print_json(stage="compiling kernels, only the first time", done=0, total=STEPS)


def findings(shape: ModelConfig) -> dict[str, Any]:
    """Return the instruction sets, the paths that the probe admits, and what passes cost; raises
    `SettingsError`."""
    used, threads = isa.current(), processors.count()
    with samples(shape, made_up(shape), tuple(NumericPath), threads) as models:
        admitted = {path: model for path, model in models.items() if independent_rows(model)}
        print_json(stage="timing passes", done=1, total=STEPS)
        timed = {path: admitted[path] for path in CHOSEN if path in admitted}
        curves = measured_curves(timed, shape.layers) if timed else {}
    among = {path: curves[path] for path in compared(shape) if path in curves} or curves
    return {
        "instruction_set": str(used),
        "threads": threads,
        "paths": [
            {"path": str(path), "kernel": kind_of(path).name, "admitted": path in admitted}
            for path in NumericPath
        ],
        "model": MODEL,
        "dtype": str(choose(among, Role.TARGET).path) if among else None,
        "seconds": {str(path): mean_pass(curve, Role.TARGET) for path, curve in curves.items()},
    }


def made_up(shape: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Return weights for as many layers as are timed."""
    noise = np.random.default_rng(0)
    few = dataclasses.replace(shape, layers=min(LAYERS, shape.layers))
    return {
        name: noise.standard_normal(size, np.float32) / np.sqrt(np.float32(size[-1]))
        for name, size in expected_shapes(few).items()
    }
