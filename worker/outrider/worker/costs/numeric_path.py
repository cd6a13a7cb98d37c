"""Choice of a model's numeric path: admitted by a probe, chosen by cost curves, remembered.

Leaves the paths' arithmetic to `outrider.kernels.cpu.linear` and timing to `path_timing`. A path is
admitted only if a row's result is bit-equal beside any other rows (speculation.md). A path asked
for by name is probed at every start, on the model itself. AUTO compares what arithmetic alone does
not decide between, because a path that is only timed is compiled for nothing else, which takes a
first start many seconds. It probes and measures once, and again where the processor, a package that
makes machine code, the kernels' source or what they do here, the model's shape or the number of
threads is another (`measurement_cache`): that takes seconds, too long for a start that can change
nothing.
"""

import logging
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.contract.settings import Dtype, Role
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.worker.costs.measurement_cache import facts_file
from outrider.worker.costs.path_timing import (
    CONTEXT,
    ROWS,
    Curve,
    Weights,
    mean_pass,
    measured_curves,
    samples,
)
from outrider.worker.costs.step_timing import borrowed
from outrider.worker.errors import ModelError
from outrider.worker.host.disk_cache import remember, remembered
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import prompt_rows, tree_rows

logger = logging.getLogger(__name__)

Curves = Mapping[NumericPath, Curve]

CHOSEN = (NumericPath.FP32, NumericPath.BF16, NumericPath.INT8)
"""AUTO chooses from these for a model of floats, the most exact first. Not int4, which would round
them most; it is what AUTO takes for quants in groups, which no other path keeps."""
NARROW = 256
"""Hidden width below which arithmetic does not tell which path is fastest: what surrounds the
linear layers takes as long as they do (Zen 3 without AVX-512, one thread beside other work, mean
pass of a target of width 128: int8 2.9 ms, bf16 3.4; of 256: 7.8 and 12.5; of 576: 32 and 78)."""
TIE = 1.05
"""Factor by which a path may be slower than the fastest: of such paths the most exact is taken,
since less is noise, and would make two starts choose differently."""
PROBED = (2, 3, 4, 5, 7, 8, 9, 12, 16)
"""Row counts of the probe: every way in which the linear layers group rows."""


@dataclass(frozen=True, slots=True)
class PathChoice:
    """A numeric path, and what it was chosen from."""

    path: NumericPath
    seconds: Mapping[str, float]
    """Seconds of the role's mean pass, by each path that could be taken; empty if it was named."""

    def __str__(self) -> str:
        """The path, with the milliseconds of the paths that were compared."""
        if not self.seconds:
            return self.path
        costs = ", ".join(f"{path} {1e3 * s:.2f}" for path, s in self.seconds.items())
        return f"{self.path} (ms a pass: {costs})"


def resolve(
    dtype: Dtype,
    role: Role,
    config: ModelConfig,
    weights: Weights,
    threads: int,
    cache: pathlib.Path,
) -> PathChoice:
    """Return the path of `dtype`; AUTO takes the one on which the role's passes cost least, of
    those that keep rows independent. One by name is to be probed once the model is loaded.

    Raises `ModelError` if no path keeps rows independent.
    """
    if dtype is Dtype.AUTO:

        def measure(paths: Sequence[NumericPath]) -> Curves:
            return known_curves(paths, config, weights, threads, cache)

        return choose(auto_curves(measure, compared(config)), role)
    return PathChoice(NumericPath(dtype), {})


def choose(curves: Curves, role: Role) -> PathChoice:
    """Choose by what the role's passes cost on average; of about equal paths the most exact."""
    seconds = {path: mean_pass(curves[path], role) for path in CHOSEN if path in curves}
    limit = TIE * min(seconds.values())
    taken = next(path for path in seconds if seconds[path] <= limit)
    return PathChoice(taken, {str(path): mean for path, mean in seconds.items()})


def compared(config: ModelConfig) -> tuple[NumericPath, ...]:
    """Return the paths that AUTO compares for a model: `worth_timing`, or all for a narrow one."""
    return CHOSEN if config.hidden < NARROW else worth_timing(map(kind_of, CHOSEN))


def worth_timing(kinds: Iterable[NumericKind]) -> tuple[NumericPath, ...]:
    """Return the paths of `kinds` that some model may be fastest on: those for which no other reads
    half the bytes or fewer, and takes twice the inputs or more with an instruction."""
    kinds = tuple(kinds)
    return tuple(
        kind.path
        for kind in kinds
        if not any(
            2 * np.dtype(other.weight).itemsize <= np.dtype(kind.weight).itemsize
            and other.group >= 2 * kind.group
            for other in kinds
        )
    )


def auto_curves(
    measure: Callable[[Sequence[NumericPath]], Curves], paths: Sequence[NumericPath]
) -> Curves:
    """Return the cost curves from which AUTO chooses, of all paths where none of `paths` keeps rows
    independent.

    Raises `ModelError` if no path does.
    """
    try:
        return measure(paths)
    except ModelError as error:
        if paths == CHOSEN:
            raise
        logger.warning("%s; the other paths are compared", error)
        return measure(CHOSEN)


def known_curves(
    paths: Sequence[NumericPath],
    config: ModelConfig,
    weights: Weights,
    threads: int,
    cache: pathlib.Path,
) -> Curves:
    """Return the cost curves of the admitted ones of `paths`, remembered or measured now.

    Raises `ModelError` if none is admitted.
    """
    file = _file(paths, config, threads, cache)
    if known := remembered(file, _curves):
        return known
    with samples(config, weights, paths, threads) as models:
        curves = measured_curves(admitted(models), config.layers)
    remember(file, {str(path): curve for path, curve in curves.items()})
    return curves


def independent_rows(model: Llama) -> bool:
    """True if logits (of a stage: hidden states) of a row are bit-equal alone and beside others, at
    every place among them."""
    with borrowed(model.kv_cache) as block_table:
        _fill_context(model, block_table)
        alone = _siblings(model, block_table, 1)[0].copy()
        for count in PROBED:
            if count > model.row_capacity:
                break
            logits = _siblings(model, block_table, count)
            if not all(np.array_equal(row, alone) for row in logits[:: max(1, count - 1)]):
                return False
    return True


def admitted(models: Mapping[NumericPath, Llama]) -> dict[NumericPath, Llama]:
    """Return those whose rows are independent; raises `ModelError` if there is none."""
    admitted = {path: model for path, model in models.items() if independent_rows(model)}
    refused = ", ".join(sorted(models.keys() - admitted.keys()))
    if not admitted:
        raise ModelError(f"dtype {refused}: a row's result depends on its neighbours here")
    if refused:
        logger.warning("%s is not used here: rows depend on their neighbours", refused)
    return admitted


def _fill_context(model: Llama, block_table: BlockTable) -> None:
    """Compute keys and values of a prompt, which rows then see."""
    tokens = (np.arange(CONTEXT, dtype=np.int32) * 31 + 7) % np.int32(model.config.vocab)
    for start in range(0, CONTEXT, model.row_capacity):
        chunk = tokens[start : start + model.row_capacity]
        rows = prompt_rows(chunk, start, block_table, False)
        model.forward_layers(rows, None if model.layers.embeds else _states(chunk, model))


def _siblings(model: Llama, block_table: BlockTable, count: int) -> np.ndarray:
    """Return logits of `count` rows after one context; first and last are the same token."""
    numbers = np.arange(count, dtype=np.int32)
    tokens = np.where(numbers < count - 1, numbers * 977 % model.config.vocab, 0).astype(np.int32)
    prefix, offsets = np.full(count, CONTEXT, np.int32), numbers + np.int32(CONTEXT)
    own, ones = offsets[:, None], np.ones(count, np.int32)
    rows = tree_rows(tokens, offsets, block_table, prefix, own, ones)
    return model.forward_layers(rows, None if model.layers.embeds else _states(tokens, model))


def _states(tokens: np.ndarray, model: Llama) -> np.ndarray:
    """Return hidden states for a stage behind the first, equal ones for equal tokens."""
    waves = np.outer(tokens + 1.0, np.arange(1, model.config.hidden + 1))
    states: np.ndarray = np.sin(waves).astype(np.float32)
    return states


def _file(
    paths: Sequence[NumericPath], config: ModelConfig, threads: int, cache: pathlib.Path
) -> pathlib.Path:
    kinds = [(str(path), kind_of(path).name) for path in paths]
    return facts_file(cache, "curves", config, threads, kinds)


def _curves(facts: Any) -> dict[NumericPath, dict[int, float]]:
    """Read what `known_curves` remembered; raises as `remembered` wants it, or returns nothing."""
    curves = {
        NumericPath(path): {int(rows): float(s) for rows, s in curve.items()}
        for path, curve in facts.items()
    }
    return curves if all(curve.keys() == set(ROWS) for curve in curves.values()) else {}
