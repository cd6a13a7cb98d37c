"""The options of `outrider distil`, and the recipe that they make."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from outrider.cli.commands.options import number
from outrider.cli.failures import BadInput
from outrider.contract.settings import MAX_THREADS, Device, Dtype

LAST_SEED = 2**31 - 1
MOST_TOKENS = 10**12
RELATIVE = "file://"

Target = Annotated[str, Option(metavar="URI", help="The target: file://, hf:// or package://.")]
Out = Annotated[
    Path, Option(metavar="FOLDER", help="The draft's folder; one that was begun goes on.")
]
Prompts = Annotated[
    list[str] | None,
    Option(
        metavar="FILE|SET",
        help="What is asked: a file (.txt, a prompt a line, or .jsonl), or a set: `templates` "
        "(bundled), `chatterbot` (a package). May be repeated: they take turns. "
        "[default: templates]",
    ),
]
TestPrompts = Annotated[
    Path | None,
    Option(
        metavar="FILE", help="Prompts to test the draft on. [default: the first 64 of the others]"
    ),
]
Tokens = Annotated[int, number("N", 1, MOST_TOKENS, "Tokens that the target writes.")]
AnswersFrom = Annotated[
    list[Path] | None,
    Option(
        metavar="FOLDER",
        help="Another distillation of this target, whose answers are trained on, too. May be "
        "repeated.",
    ),
]
Layers = Annotated[
    str | None,
    Option(metavar="N,N,…", help="Layers that the draft begins with. [default: 0, 1, the last]"),
]
BeginWith = Annotated[
    Path | None,
    Option(metavar="FOLDER", help="A draft of this target to train further, in place of layers."),
]
Outputs = Annotated[int, number("N", 2, 10**6, "Token ids that the draft can output.")]
Epochs = Annotated[float, number("X", 0, 1000, "Times that training sees each answer.", above=True)]
Rate = Annotated[float, number("X", 0, 1, "Learning rate.", above=True)]
Rounds = Annotated[
    int, number("N", 0, 100, "Rounds on what the draft itself writes, judged by the target.")
]
Seed = Annotated[int, number("N", 0, LAST_SEED, "Same seed and machine, same draft.")]
TargetDtype = Annotated[
    Dtype, Option(help="Numeric path of the target; auto is int8 on CPUs, bf16 on GPUs.")
]
On = Annotated[Device, Option(help="Where target and training run.")]
Threads = Annotated[int, number("N", 1, MAX_THREADS, "Threads on a CPU.")]
Slots = Annotated[int, number("N", 1, 256, "Chats that are written at a time.")]
OnlyAnswers = Annotated[bool, Option("--only-answers", help="Stop once the answers are written.")]
Licence = Annotated[str, Option(metavar="TEXT", help="What the card says.")]


def target_uri(uri: str) -> str:
    """Return a target's URI with an absolute path: the draft's config and service name it."""
    path = uri.removeprefix(RELATIVE)
    return uri if path == uri else RELATIVE + str(Path(path).absolute())


def layer_numbers(text: str | None) -> list[int] | None:
    """Return layers as numbers; raises `BadInput`."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--layers {text}: allowed: numbers with commas between them") from None


def prompt_names(given: list[str] | None) -> list[str] | None:
    """Return names of sets as they are, of files as absolute paths."""
    if not given:
        return None
    return [str(Path(name).absolute()) if Path(name).exists() else name for name in given]


def folders(given: list[Path] | None) -> list[str] | None:
    """Return folders as absolute paths."""
    return [str(folder.absolute()) for folder in given] if given else None


def recipe(**given: Any) -> dict[str, Any]:
    """Return the recipe as the process takes it: plain values, without what is left out."""
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    return {key: value for key, value in plain.items() if value is not None}
