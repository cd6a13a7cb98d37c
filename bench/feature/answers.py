"""Greedy answers of the target to the bundled prompts, with its features: what is measured on.

No draft was trained on them.
"""

from itertools import cycle
from pathlib import Path

import torch
from tools.feature_draft.questions import Opening, Question
from tools.feature_draft.shards import Chat, load_shard, save_shard
from tools.feature_draft.writer import Writer

from bench.report import prompts
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.model.prepared import PreparedModel


class Bundled:
    """The bundled prompts, in turn."""

    def __init__(self) -> None:
        self._prompts = cycle(prompts())

    def draw(self) -> Question:
        """Return the next prompt, whole."""
        return Question(Opening.ALL, next(self._prompts).text)


def answers(target: PreparedModel, file: Path) -> list[Chat]:
    """Return one chat for each prompt; what the file holds already is not written again."""
    if not file.exists():
        count = len(prompts())
        with torch.no_grad():
            writer = Writer(target, NumericPath.INT8, count, Bundled(), greedy=1.0)
            save_shard(file, writer.first(count))
    return list(load_shard(file))
