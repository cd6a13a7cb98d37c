"""What is asked of a distillation: the YAML that `outrider distil` reads."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from outrider.contract.settings import MAX_THREADS, Device, Dtype
from outrider.distil.errors import BadRecipe
from outrider.operator.spec.document import read_document
from outrider.operator.spec.model import Uri
from outrider.operator.spec.part import Count, SpecPart
from outrider.operator.spec.reading import validate

TEMPLATES = "templates"
"""Name of the bundled prompts that are asked if none are named."""
LOCAL = "file://"


def answers_of(folder: Path) -> Path:
    """Return where a draft's folder has the target's answers."""
    return folder / "work" / "answers"


class Recipe(SpecPart):
    """One distillation."""

    model_config = ConfigDict(populate_by_name=True)

    target: Uri
    """The target: file://, hf:// or package://."""
    out: Path
    """The draft's folder; one that was begun goes on."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] = (TEMPLATES,)
    """What is asked, in turns: files (.txt, a prompt a line, or .jsonl), and sets: `templates`
    and `code` (bundled), `chatterbot` (a package)."""
    test_prompts: Path | None = None
    """Prompts to test the draft on; left out, the first 64 of the others."""
    tokens: Annotated[Count, Field(ge=1, le=10**12)] = 2_000_000
    """Tokens that the target writes."""
    answers_from: tuple[Path, ...] = ()
    """Folders of other distillations of this target whose answers are trained on, too."""
    layers: tuple[Count, ...] | None = None
    """Layers of the target, or of `layersFrom`, that the draft begins with; left out, 0, 1 and the
    last."""
    layers_from: Uri | None = None
    """Another model with the target's tokenizer, whose layers, embedding and head the draft has."""
    begin_with: Path | None = None
    """A draft of this target to train further, in place of `layers` and `layersFrom`."""
    outputs: Annotated[Count, Field(ge=2, le=10**6)] = 12_000
    """Token ids that the draft can output."""
    epochs: Annotated[float, Field(ge=0.001, le=1000)] = 3.0
    """Times that training sees each answer."""
    learning_rate: Annotated[float, Field(ge=1e-9, le=1)] = 1e-3
    """Learning rate."""
    rounds: Annotated[Count, Field(ge=0, le=100)] = 0
    """Rounds on what the draft itself writes, judged by the target."""
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    """Same seed and machine, same draft."""
    dtype: Dtype = Dtype.AUTO
    """Numeric type of the target; auto is int8 on CPUs, bf16 on GPUs."""
    device: Device = Device.AUTO
    """Where target and training run."""
    threads: Annotated[Count, Field(ge=1, le=MAX_THREADS)] = 1
    """Threads on a CPU."""
    slots: Annotated[Count, Field(ge=1, le=256)] = 96
    """Chats that are written at a time."""
    only_answers: bool = False
    """Stop once the answers are written."""
    licence: str = "that of the target"
    """Licence that the card names."""

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

    def at(self, folder: Path) -> Self:
        """Return the recipe with its relative paths taken from a folder; what is no file there is
        the name of a set of prompts."""
        paths: dict[str, Any] = {
            "target": _at(folder, self.target),
            "out": folder / self.out,
            "layers_from": self.layers_from and _at(folder, self.layers_from),
            "test_prompts": self.test_prompts and folder / self.test_prompts,
            "begin_with": self.begin_with and folder / self.begin_with,
            "answers_from": tuple(folder / one for one in self.answers_from),
            "prompts": tuple(
                str(folder / one) if (folder / one).is_file() else one for one in self.prompts
            ),
        }
        return self.model_copy(update=paths)


def _at(folder: Path, uri: str) -> str:
    path = uri.removeprefix(LOCAL)
    return uri if path == uri else f"{LOCAL}{folder / path}"


def read_recipe(file: Path) -> Recipe:
    """Return what a file asks for; raises `OSError`, and `BadRecipe` with a line a problem."""
    try:
        recipe = validate(Recipe, read_document(file.read_text(encoding="utf-8")))
    except ValueError as error:
        lines = str(error).splitlines()
        raise BadRecipe("\n".join(f"{file}: {line}" for line in lines)) from None
    return recipe.at(file.absolute().parent)
