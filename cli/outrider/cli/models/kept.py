"""`outrider models`: the models that are kept on this machine, as a worker knows them.

A worker lists, removes and prepares them; this asks it and shows what it says.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.failures import BadInput
from outrider.cli.machine.run_dir import RunFolder, told_cache
from outrider.cli.models.argument import HUB, borrows_embedding, model_name
from outrider.cli.models.pairing import Pairing, pairing
from outrider.cli.terminal.amounts import size
from outrider.cli.terminal.progress import StageReporter, reporter
from outrider.cli.workers.output import ask_worker, result_of
from outrider.cli.workers.process import WORKER, Command
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.contract.version import missing_extra

INSTALL = missing_extra("worker")
WIDE, NARROW = 250, 140
"""Columns of the table of models, and of a terminal that is too narrow for it."""
NAMELESS = "(not known)"
NOTES = 10**5
"""Most bytes that are kept of a model whose own files are read."""
LENDER = "--embeddings-from"
"""The option that names the model whose embedding a draft borrows."""


@dataclass(frozen=True, slots=True)
class ModelCache:
    """Where models are kept, and who looks after them."""

    cache: Path
    command: Command = WORKER
    runs: Path | None = None
    """Folder of settings and logs; None: `~/.cache/outrider/runs`."""

    async def models(self, removed: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return what is kept, or, of what is `removed`, what was; raises `BadInput` for a model
        that is not kept."""
        options = [f"--remove={one}" for one in removed]
        command = (*self.command, "models", "--cache", str(self.cache), *options)
        found = await result_of("the list of models", command, INSTALL, reporter(), "models")
        models: list[dict[str, Any]] = found["models"]
        return models

    def has_any(self) -> bool:
        """False where nothing was ever prepared, so that nobody need be asked."""
        return any((self.cache / "models").glob("*"))

    async def pairing(self, target: str, draft: str) -> Pairing:
        """Return how a model that is kept would draft for another; raises `Failure`."""
        run, lender = RunFolder(self.runs), target if borrows_embedding(draft) else None
        models = ModelSettings(uri=target), ModelSettings(uri=draft, embeddings_from=lender)
        found = await pairing(*models, str(self.cache), self.command, run)
        run.remove()
        return found

    async def pull(self, uri: str, progress: StageReporter, lender: str | None = None) -> None:
        """Fetch and prepare a model, and the `lender` of its embedding; raises `Failure`."""
        model = ModelSettings(uri=uri, embeddings_from=lender)
        settings = WorkerSettings(role=Role.TARGET, name=uri, model=model, cache=str(self.cache))
        run = RunFolder(self.runs)
        await ask_worker("prepare", "pull", settings, self.command, run, progress)
        run.remove()


def own_cache() -> ModelCache:
    """Return that of this user: where `outrider run` looks."""
    return ModelCache(told_cache())


async def pulled(
    uris: Sequence[str], cache: ModelCache, lender: str | None = None
) -> list[dict[str, Any]]:
    """Fetch and prepare models; return what is then kept of them.

    A draft that is alone borrows the embedding of `lender`. Raises `BadInput` where that is wanted.
    """
    if lender is not None and len(uris) > 1:
        raise BadInput(f"{LENDER} is of one draft; name one MODEL.")
    for uri in uris:
        if lender is None and borrows_embedding(uri):
            raise BadInput(f"MODEL {uri} borrows the embedding of its target; name that: {LENDER}")
    progress = reporter()
    try:
        for uri in uris:
            await cache.pull(uri, progress, lender)
    except asyncio.CancelledError:
        if any(uri.startswith(HUB) for uri in uris):
            progress.note("what was downloaded stays, and the next pull goes on with it")
        raise
    finally:
        progress.clear()
    return [one for one in await cache.models() if {*uris, lender} & {*one["uris"]}]


def sampling_in_words(params: Mapping[str, float]) -> str:
    """Say how tokens are sampled where a request is silent; empty: as Outrider does."""
    return ", ".join(f"{name} {value:g}" for name, value in params.items())


def show(models: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the models: a line each, or, on a narrow terminal, a name with its details below."""
    if console.is_terminal and console.width < NARROW:
        for one in models:
            console.print(_block(one), soft_wrap=True)
    else:
        console.width = max(console.width, WIDE)  # what is long is not broken, so that it is found
        console.print(_table(models))


def _block(one: Mapping[str, Any]) -> Text:
    """Return a model's name, its details, and its URIs."""
    uris = one["uris"]
    details = [
        f"id {one['id']}",
        _place(one),
        f"{size(one['download_bytes'])} downloaded" if one["download_bytes"] else "",
        _day(one),
        f"ends at {' '.join(one['end_tokens'])}" if one["end_tokens"] else "",
        sampling_in_words(one["default_sampling"]),
    ]
    name = model_name(uris[0]) if uris else NAMELESS
    lines = [" · ".join(filter(None, details)), *uris]
    return Text.assemble((name, "bold"), ("".join(f"\n  {line}" for line in lines), "dim"))


def _place(one: Mapping[str, Any]) -> str:
    own: int = one["prepared_bytes"]
    return size(own) if own > NOTES else "in place" if one["is_whole"] else "cut off"


def _day(one: Mapping[str, Any]) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(one["changed"]))


def _table(models: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each model, and further ones for its further URIs."""
    table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=True)
    table.add_column("id", style="dim")
    for title in ("prepared", "downloaded"):
        table.add_column(title, justify="right")
    table.add_column("changed", style="dim")
    table.add_column("answers end at")
    table.add_column("default sampling")
    table.add_column("model")
    for one in models:
        downloaded, names = size(one["download_bytes"]), "\n".join(one["uris"]) or NAMELESS
        ends = Text("\n".join(one["end_tokens"]))
        sampling = sampling_in_words(one["default_sampling"])
        table.add_row(one["id"], _place(one), downloaded, _day(one), ends, sampling, names)
    return table
