"""Preparation of models: a model URI becomes folders of plain files that load in a second.

Weights stay where they lie: in a folder of safetensors, or in a GGUF file, whose config and
tokenizer are written into the cache. Leaves finding files to `source`, reading GGUF to `gguf_file`,
and loading to `load`.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.contract.files import user_cache, write_text
from outrider.contract.settings import ModelSettings, SettingsError, WorkerSettings
from outrider.contract.version import version
from outrider.worker.checkpoints import answer_ends, vocabulary
from outrider.worker.checkpoints.checkpoint import GGUF, compare_head, weight_files
from outrider.worker.checkpoints.config_file import GENERATION_CONFIG, read_config, read_json
from outrider.worker.checkpoints.fingerprint import Progress, combined, file_hashes, memo_of
from outrider.worker.checkpoints.kept_models import (
    forget_pull,
    note_ends,
    note_pull,
    note_source,
)
from outrider.worker.checkpoints.prepared import CHECKPOINT, PreparedModel
from outrider.worker.checkpoints.source import ModelSource
from outrider.worker.errors import ModelError, WorkerError
from outrider.worker.host import torch_extra
from outrider.worker.host.disk_cache import made_once

if TYPE_CHECKING:
    from outrider.worker.checkpoints.gguf_file import GgufModel

FORMAT = "3"
"""Raised when what is written into the cache changes, so that older folders are left alone."""
LENDER = "embeddingsFrom of a service, --embeddings-from of `outrider models pull`"
_TOKENIZER_SOURCES = ("tokenizer.model", "vocab.json", "spiece.model")


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """One model's own files, before anything is borrowed."""

    directory: Path
    tokenizer: Path | None
    cache: Path
    identity: str
    """SHA-256 of weights and config."""
    gguf_sha256: str | None


def prepare(model: ModelSettings, cache: Path, progress: Progress) -> PreparedModel:
    """Make everything that `load` and `Text` need; does nothing twice, in no number of processes.

    `progress` is told (stage, done, total): "download" and "hash" in bytes, "tokenizer" in steps.
    Raises `ModelError`.
    """
    try:
        return _prepare(model, cache, progress)
    except OSError as error:
        raise ModelError(f"model {model.uri}: {error}") from error


def cache_folder(settings: WorkerSettings) -> Path:
    """Return the folder of prepared models and measured facts."""
    given = settings.cache
    return user_cache() if given is None else Path(given).absolute()


def main(settings_path: str) -> int:
    """Run `python -m outrider.worker prepare`: JSON lines on stdout; returns the exit status.

    Lines are `{"stage", "done", "total"}`, at the end `{"prepared", "colocated"}` with the fields
    of `PreparedModel`, or `{"error"}` with status 1.
    """
    try:
        settings = WorkerSettings.from_json(Path(settings_path).read_text(encoding="utf-8"))
        torch_extra.check(settings)  # before anything is fetched
        cache = cache_folder(settings)
        report = _Report()
        own = prepare(settings.model, cache, report)
        settings.pipeline.check_layers(own.config().layers)
        colocated = settings.colocated and prepare(settings.colocated, cache, report)
        done = {"prepared": own.to_fields(), "colocated": colocated and colocated.to_fields()}
    except (WorkerError, SettingsError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps(done), flush=True)
    return 0


class _Report:
    """Prints progress as JSON lines, one for each new thousandth."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = (stage, 1000 * done // max(total, 1))
        if now != self._last:
            self._last = now
            print(json.dumps({"stage": stage, "done": done, "total": total}), flush=True)


def _prepare(model: ModelSettings, cache: Path, progress: Progress) -> PreparedModel:
    lender = None
    if model.embeddings_from is not None:
        lender = _checkpoint(ModelSource.parse(model.embeddings_from), cache, progress)
    own = _checkpoint(ModelSource.parse(model.uri), cache, progress, lender)
    if lender is not None:
        _check_lender(own.directory, lender, str(model.embeddings_from))
    tokenizer = own.tokenizer or (lender.tokenizer if lender else None)
    if tokenizer is None:
        raise ModelError(
            f"model {model.uri}: {own.directory} holds no tokenizer; a draft that borrows its "
            f"target's has to name that ({LENDER})"
        )
    prepared = PreparedModel(
        name=ModelSource.parse(model.uri).name,
        directory=own.directory,
        tokenizer=tokenizer,
        cache=own.cache,
        revision=combined(version(), own.identity, lender.identity if lender else ""),
        embeddings=lender.directory if lender else None,
    )
    answer_ends.note(tokenizer, own.cache)
    note_ends(own.cache, prepared.config().end_ids, lambda: _namer(tokenizer))
    return prepared


def _namer(tokenizer: Path) -> Callable[[int], str]:
    """Return what names a token of the tokenizer in a folder."""
    words = vocabulary.load_tokenizer(tokenizer)
    return lambda token: words.id_to_token(token) or str(token)


def _checkpoint(
    source: ModelSource, cache: Path, progress: Progress, lender: _Checkpoint | None = None
) -> _Checkpoint:

    def begin(folder: Path) -> None:
        read_config(folder, lender.directory if lender else None)  # refuses before it is fetched
        note_pull(cache, source.uri)

    path = source.resolve(progress, begin)
    files: tuple[Path, ...] = (path,)
    config: tuple[bytes, ...] = ()
    if is_gguf := path.is_file():
        if not memo_of(path, cache).is_file():
            _checked(path)  # refuses before hashing gigabytes
    else:
        read_config(path, lender.directory if lender else None)  # refuses before hashing gigabytes
        files, config = weight_files(path), ((path / "config.json").read_bytes(),)
    hashes = file_hashes(files, cache, progress)
    identity = combined(FORMAT, *hashes, *config)
    folder = cache / "models" / identity[:32]
    folder.mkdir(parents=True, exist_ok=True)
    note_source(folder, source.uri)
    forget_pull(cache, source.uri)
    if not is_gguf:
        if lender is None and read_config(path).tied:
            compare_head(path, folder)
        return _Checkpoint(path, _tokenizer(path, folder, progress), folder, identity, None)
    made = made_once(folder / CHECKPOINT, lambda fresh: _describe(path, fresh, progress))
    _link(made / GGUF, path)
    return _Checkpoint(made, made, folder, identity, hashes[0])


def _checked(path: Path) -> "GgufModel":
    """Open a GGUF file that can be served; raises `ModelError`, by its header alone."""
    from outrider.worker.checkpoints.gguf_file import GgufModel

    model = GgufModel(path)
    model.check()
    return model


def _describe(path: Path, fresh: Path, progress: Progress) -> None:
    """Write config and tokenizer of a GGUF file as Hugging Face would have written them."""
    from outrider.worker.checkpoints.gguf_tokenizer import tokenizer_of

    model = _checked(path)
    write_text(fresh / "config.json", json.dumps(model.config_fields(), indent=2))
    write_text(fresh / GENERATION_CONFIG, json.dumps(model.generation_fields(), indent=2))
    _write_tokenizer(fresh, progress, path, lambda: tokenizer_of(model))


def _link(link: Path, file: Path) -> None:
    """Make a link to a file, or make it lead there."""
    target = file.resolve()
    if link.is_symlink() and link.readlink() == target:
        return
    with tempfile.TemporaryDirectory(dir=link.parent) as folder:
        fresh = Path(folder, link.name)
        fresh.symlink_to(target)
        fresh.replace(link)


def _tokenizer(directory: Path, folder: Path, progress: Progress) -> Path | None:
    """Return a folder with tokenizer.json: the model's own, or converted from its older files."""
    if (directory / "tokenizer.json").is_file():
        return directory
    if not any((directory / name).is_file() for name in _TOKENIZER_SOURCES):
        return None

    def converted() -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(directory)

    return made_once(
        folder / "tokenizer", lambda fresh: _write_tokenizer(fresh, progress, directory, converted)
    )


def _write_tokenizer(
    fresh: Path, progress: Progress, source: Path, tokenizer: Callable[[], Any]
) -> None:
    """Write tokenizer.json and its neighbours of transformers' tokenizer of `source`."""
    progress("tokenizer", 0, 1)
    try:
        tokenizer().save_pretrained(fresh)
    except (OSError, ValueError, LookupError, TypeError, ImportError) as error:
        raise ModelError(f"{source}: no usable tokenizer: {error}") from error
    progress("tokenizer", 1, 1)


def _check_lender(draft: Path, lender: _Checkpoint, uri: str) -> None:
    """Check the file that a draft may name as the source of its embedding."""
    target = read_json(draft / "config.json").get("target")
    wanted = target.get("gguf_sha256") if isinstance(target, dict) else None
    if wanted is not None and wanted != lender.gguf_sha256:
        found = lender.gguf_sha256 or "not a GGUF file"
        raise ModelError(
            f"{draft}: this draft was made for the GGUF file with sha256 {wanted}, "
            f"but embeddings_from {uri} is {found}"
        )
