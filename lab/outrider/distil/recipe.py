"""What is asked of a distillation: `outrider distil`'s options, as the process takes them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from outrider.contract.settings import Device, Dtype
from outrider.distil.errors import BadRecipe

TEMPLATES = "templates"
"""Name of the bundled prompts."""
KINDS: dict[str, Callable[[Any], Any]] = {
    "out": Path,
    "test_prompts": Path,
    "prompts": tuple,
    "layers": tuple,
    "begin_with": Path,
    "answers_from": lambda given: tuple(map(Path, given)),
    "dtype": Dtype,
    "device": Device,
}
"""Types of fields that JSON does not have."""


def answers_of(folder: Path) -> Path:
    """Return where a draft's folder has the target's answers."""
    return folder / "work" / "answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One distillation."""

    target: str
    """Model URI."""
    out: Path
    """Folder of the draft, and of the work on it."""
    prompts: tuple[str, ...] = (TEMPLATES,)
    """Files, and names of sets."""
    test_prompts: Path | None = None
    """File of prompts to test on; None: the first of `prompts` are held out."""
    tokens: int = 2_000_000
    """That the target writes."""
    answers_from: tuple[Path, ...] = ()
    """Folders of other distillations of this target whose answers are trained on, too."""
    layers: tuple[int, ...] | None = None
    """Of the target, with which the draft begins; None: the first two and the last."""
    begin_with: Path | None = None
    """Folder of a draft to train further, in place of layers of the target."""
    outputs: int = 12_000
    """Token ids that the draft can output."""
    epochs: float = 3.0
    """Times that training goes over the answers."""
    learning_rate: float = 1e-3
    rounds: int = 0
    """Of training on what the draft itself wrote."""
    seed: int = 0
    dtype: Dtype = Dtype.AUTO
    """Numeric path of the target."""
    device: Device = Device.AUTO
    threads: int = 1
    slots: int = 96
    """Chats that are written at a time."""
    only_answers: bool = False
    """Stop once they are written."""
    licence: str = "that of the target"
    """In words, for the card."""

    @property
    def work(self) -> Path:
        """The folder of what the draft is made from."""
        return self.out / "work"

    @property
    def answers(self) -> Path:
        """The folder of the target's answers."""
        return answers_of(self.out)

    def round(self, number: int) -> Path:
        """Return the folder of one round's guesses."""
        return self.work / f"round-{number}"

    def training(self, number: int) -> Path:
        """Return the checkpoint of a round's training; 0: of that on the target's answers."""
        return self.work / f"training-{number}.pt"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what the command line wrote; raises `BadRecipe` for an unknown field."""
        given = json.loads(text)
        unknown = given.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise BadRecipe(f"unknown: {', '.join(sorted(unknown))}")
        read: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        for key, kind in KINDS.items():
            if key in read:
                read[key] = kind(read[key])
        return cls(**read)
