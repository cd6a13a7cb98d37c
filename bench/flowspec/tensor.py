"""The other way to cut a target: tensor parallelism over the same devices and links.

Every device computes a share of each layer. Twice a layer all add up what they have: a ring, in
which each sends a share of the rows to the next one, 2 (devices - 1) times (reduce-scatter, then
all-gather). A pipeline sends rows once a stage; so the links decide.
"""

from dataclasses import replace
from typing import Protocol

import numpy as np

from bench.flowspec.outcome import Outcome
from bench.flowspec.setting import MAX_ROWS, Setting

SUMS = 2
"""Sums of a layer: behind its attention, and behind its feed-forward."""
VALUE_BYTES = 2
"""Bytes of a number of a hidden vector, which travels in fp16."""


class Run(Protocol):
    """One side with one text."""

    def run(self) -> Outcome: ...


def tensor_parallel(setting: Setting) -> Setting:
    """Return a target in one piece that takes what the setting's devices take together.

    Its passes have the setting's times, shared out evenly, and the sums of all layers.
    """
    devices, rows = setting.count, np.arange(1, MAX_ROWS + 1)
    share = VALUE_BYTES * setting.hidden * rows / devices
    step = share * 8 / setting.links.bits_per_second + setting.links.delay
    sums = SUMS * setting.layers * 2 * (devices - 1) * step
    together = setting.stages.sum(axis=0) / devices + sums
    return replace(setting, stages=together[None])


def bytes_of_sums(setting: Setting, rows: float) -> float:
    """Return the bytes on all links of the sums of so many rows."""
    times = SUMS * setting.layers * 2 * (setting.count - 1)
    return times * VALUE_BYTES * setting.hidden * rows


class TensorParallel:
    """One side with one text, whose target is cut so."""

    def __init__(self, run: Run, setting: Setting) -> None:
        """`run`: over `tensor_parallel(setting)`."""
        self._run = run
        self._setting = setting

    def run(self) -> Outcome:
        """Answer the request; bytes are those of the sums, too."""
        outcome = self._run.run()
        sums = bytes_of_sums(self._setting, outcome.rows_per_token * outcome.tokens)
        note = f"tensor parallel: {outcome.note or 'plain'}"
        return replace(outcome, bytes=outcome.bytes + round(sums), note=note)
