"""What all stages of one distillation share: recipe, target, device, and the engines they load."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from outrider.contract.settings import Dtype
from outrider.distil.answers import LONGEST
from outrider.distil.engine import Engine, Room, engine_of
from outrider.distil.progress import Progress
from outrider.distil.recipe import Recipe
from outrider.distil.start import draft_settings
from outrider.distil.target import Target
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.host.device import torch_device


@dataclass(frozen=True, slots=True)
class DistillationContext:
    """What all stages of one run work with."""

    recipe: Recipe
    target: Target
    device: str | None
    """Name of a GPU, as torch has it; None: the CPU's own path."""
    cache: Path
    """Folder of prepared models."""
    progress: Progress

    @classmethod
    def open(cls, recipe: Recipe, cache: Path, progress: Progress) -> Self:
        """Find device and target; raises `BadRecipe` and `ModelError`."""
        device = torch_device(recipe.device)
        return cls(
            recipe, Target.find(recipe.target, cache, progress.stage), device, cache, progress
        )

    def target_engine(self, sequences: int, longest: int = LONGEST) -> Engine:
        """Load the target."""
        recipe, room = self.recipe, Room(sequences, longest)
        return engine_of(self.target.prepared, recipe.dtype, room, self.device, recipe.threads)

    def draft_engine(self, folder: Path, sequences: int, longest: int = LONGEST) -> Engine:
        """Load a draft from its folder, as a worker would."""
        settings = draft_settings(folder, self.target.uri)
        prepared = prepare(settings, self.cache, self.progress.stage)
        room = Room(sequences, longest)
        return engine_of(prepared, Dtype.AUTO, room, self.device, self.recipe.threads)
