"""How a draft drafts for a target, as a worker finds from their tokenizers; remembered."""

import contextlib
import json
from dataclasses import asdict, dataclass

from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.output import ask_worker
from outrider.cli.workers.prepared_models import note_of
from outrider.cli.workers.process import Command
from outrider.contract.files import write_whole
from outrider.contract.settings import ModelSettings, Role, WorkerSettings

NAME = "pair"


@dataclass(frozen=True, slots=True)
class Pairing:
    """How a draft drafts for a target."""

    share: float | None = None
    """Share of the draft's tokens that the target has, too; None: they have one tokenizer."""
    refused: str = ""
    """Why they cannot work together; empty: they can."""

    def __str__(self) -> str:
        """Say it in a sentence; empty for one tokenizer, of which there is nothing to say."""
        if self.refused:
            return f"the draft cannot be used: {self.refused}"
        if self.share is None:
            return ""
        return (
            f"the draft has another tokenizer: it drafts by the {self.share:.0%} of its tokens "
            "that are the target's, too"
        )


async def pairing(
    target: ModelSettings,
    draft: ModelSettings,
    cache: str | None,
    command: Command,
    folder: RunFolder,
    progress: StageReporter | None = None,
) -> Pairing:
    """Return how a prepared draft drafts for a prepared target; raises `Failure`."""
    settings = WorkerSettings(
        role=Role.TARGET, name=NAME, model=target, colocated=draft, cache=cache
    )
    note = note_of(settings, command).with_suffix(".pair.json")
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Pairing(**json.loads(note.read_text(encoding="utf-8")))
    said = await ask_worker("pair", NAME, settings, command, folder, progress)
    found = Pairing(refused=said["refused"]) if "refused" in said else Pairing(**said["pair"])
    with contextlib.suppress(OSError):  # the next start asks again
        write_whole(note, json.dumps(asdict(found)))
    return found
