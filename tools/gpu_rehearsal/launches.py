"""Launches of the benchmarks of a device, once each: `python -m tools.gpu_rehearsal.launches E`.

Models have one layer here: kernels depend on a layer's shape, not on how many there are. What a
launch raises is printed with its case, and ends with status 1.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from tools.gpu_rehearsal import driver
from torch.overrides import TorchFunctionMode
from triton.runtime.errors import OutOfResources

from bench import decode_step
from bench.gpu import tuning
from bench.gpu.cases import attention_cases, linear_cases
from bench.gpu.cases.kernel_case import OURS, Backing, Case
from bench.gpu.random_model import random_model
from bench.gpu.timed_steps import growing, one_step, prompt_chunk
from bench.roofline.work import LLAMA_8B, WEIGHTS, Shape
from outrider.kernels.gpu.tiling import Tiling
from outrider.kernels.gpu.weights import Weights
from outrider.worker.gpu.capture import capture
from outrider.worker.gpu.target_runner import GpuTargetRunner

ON = Backing("cpu", torch.bfloat16)
STEP_ROWS, CONTEXT = (1, 8, 64), 4096
KERNEL_ROWS = (1, 16, 64)
CONTEXTS = (1024, 32768)
Launches = Iterator[tuple[str, Callable[[], object]]]
"""Names, and what launches."""


def steps() -> Launches:
    """Steps of every model, and growth of drafts."""
    for shape, weights in itertools.product(decode_step.MODELS, decode_step.WEIGHTS):
        one_layer = dataclasses.replace(shape, layers=1)
        longest = CONTEXT + decode_step.GROWTH
        model = random_model(one_layer, weights, longest, decode_step.MAX_ROWS, ON)
        for rows in STEP_ROWS:
            name = f"{shape.name} {weights} step of {rows}"
            yield name, partial(one_step, model, rows, CONTEXT, repeats=1)
        if shape == LLAMA_8B:
            for by_library in (False, True):
                name = f"{shape.name} {weights} prompt" + ", library" * by_library
                yield name, partial(prompt_chunk, model, CONTEXT, by_library, repeats=1)
        for width, passes in itertools.product(decode_step.WIDTHS, decode_step.CHAINED):
            if shape != LLAMA_8B:
                name = f"{shape.name} {weights} growth by {width}, {passes} a launch"
                yield name, partial(growing, model, width, CONTEXT, passes, repeats=1)


def kernels() -> Launches:
    """Every kernel of one model, and the cuts that the cost of invariance is taken from."""
    for case in _cases(LLAMA_8B):
        yield case.name, partial(_run, case.sides[OURS])
        for name, side in case.choices.items() if case.rows == KERNEL_ROWS[0] else ():
            yield f"{case.name}, {name}", partial(_run, side)


def _cases(model: Shape) -> Iterator[Case]:
    for rows in KERNEL_ROWS:
        yield from linear_cases.of_shape(model, 1, rows, *ON)
        for context in CONTEXTS:
            yield attention_cases.attention(model, 1, rows, context, ON)
        yield attention_cases.moves(model, 1, rows, *ON)
        yield attention_cases.greedy(model, 1, rows, *ON)


def _run(side: Callable[[], Callable[[], object]]) -> None:
    try:
        side()()
    except OutOfResources:
        """A cut that the device cannot hold is left out there, too."""


def cuts() -> Launches:
    """Every cut of a linear layer that `bench.gpu.tuning` times, by weights."""
    for _, outputs, inputs in tuning.layers([LLAMA_8B.name]):
        for kind in WEIGHTS:
            weights = linear_cases.random_weights(kind, outputs, inputs, *ON)
            x = torch.empty(tuning.ROWS, inputs, dtype=ON.dtype)
            out = torch.empty(tuning.ROWS, outputs, dtype=ON.dtype)
            for cut in dict.fromkeys(tuning.candidates(weights)):
                name = f"{outputs} x {inputs} {kind} {tuning.shown(cut, 0)}"
                yield name, partial(_run, partial(_launched, x, weights, out, cut))


def _launched(
    x: torch.Tensor, weights: Weights, out: torch.Tensor, cut: Tiling
) -> Callable[[], object]:
    return tuning.launched(x, weights, out, cut)


def start() -> Launches:
    """Everything that a target captures before it serves."""
    shape = dataclasses.replace(LLAMA_8B, layers=1)
    model = random_model(shape, "bf16", CONTEXT, decode_step.MAX_ROWS, ON)
    runner = GpuTargetRunner(model, shape.vocabulary)
    yield f"start of {shape.name}", partial(capture, runner, model)


START = "start"
STAGES: dict[str, Callable[[], Launches]] = {"E": steps, "F": kernels, "H": cuts, START: start}
"""What each stage of `bench.device` launches outside of tests; and a worker's start."""


class Unset(TorchFunctionMode):
    """Random tensors are left unset: nothing reads their values, and making them takes minutes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.randn:
            func = torch.empty
        return func(*args, **(kwargs or {}))


def main(stage: str) -> int:
    """Launch all of a stage; 1 if something was raised."""
    driver.install()
    failed = 0
    with Unset():
        for name, launch in STAGES[stage]():
            try:
                launch()
            except Exception as error:  # of the compiler, or of a launch: what is looked for
                failed += 1
                print(f"{name}: {driver.said(error)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
