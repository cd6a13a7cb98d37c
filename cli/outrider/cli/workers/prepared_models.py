"""Models that were prepared before, so that a start need not look: a small file for each worker.

A worker prepares by itself what it finds missing, so that nothing depends on these files but the
progress that is shown of a download, and half a second.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import outrider
from outrider.cli.machine.run_dir import told_cache
from outrider.cli.workers.process import Command
from outrider.contract.files import write_whole
from outrider.contract.settings import ModelSettings, WorkerSettings

LOOKED_AT = ("role", "model", "colocated", "tensor_parallel", "pipeline", "device")
"""Settings that a preparation looks at."""
LOCAL = "file://"
PREPARED = ("prepared", "colocated")
"""What a preparation says in the end: the folders of both models."""


def note_of(settings: WorkerSettings, command: Command) -> Path:
    """Return the file for a worker with these settings, of these very sources and model files."""
    models = [model for model in (settings.model, settings.colocated) if model is not None]
    identity = {
        "command": command,
        "sources": sources(),
        "settings": {k: v for k, v in asdict(settings).items() if k in LOOKED_AT},
        "files": [list(files_of(model)) for model in models],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return Path(settings.cache or told_cache()) / "prepared" / f"{digest[:16]}.json"


def is_prepared(note: Path) -> bool:
    """True if all folders are there that were noted."""
    try:
        folders = json.loads(note.read_text(encoding="utf-8"))
        return bool(folders) and all(os.path.isdir(folder) for folder in folders)
    except (OSError, ValueError, TypeError):
        return False


def write_note(note: Path, said: Mapping[str, Any]) -> None:
    """Note the folders that a preparation has named in the end.

    Nothing where that cannot be done: the next start then prepares again.
    """
    with contextlib.suppress(OSError):
        write_whole(note, json.dumps(list(_folders(said))))


def _folders(said: Mapping[str, Any]) -> Iterator[str]:
    for model in filter(None, map(said.get, PREPARED)):
        yield from (model[key] for key in ("directory", "tokenizer", "cache"))
        if model["embeddings"] is not None:
            yield model["embeddings"]


def sources() -> str:
    """Return SHA-256 of the source of kernels and worker: any line may change what passes cost."""
    digest = hashlib.sha256()
    for portion in sorted(outrider.__path__):
        for folder in ("kernels", "worker"):
            for file in sorted((Path(portion) / folder).rglob("*.py")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def files_of(model: ModelSettings) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of a local model's files: it may be trained again in its place."""
    if model.uri.startswith(LOCAL):
        path = Path(model.uri.removeprefix(LOCAL))
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                facts = file.stat()
                yield str(file), facts.st_size, facts.st_mtime_ns
