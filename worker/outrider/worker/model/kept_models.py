"""Models that are kept on this machine: what was prepared of them, and what was downloaded.

A prepared model's folder says which URI it is of; those of older versions do not. Leaves
preparing to `prepare`, and Hugging Face's cache, where downloads lie, to `hub_cache`.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.worker.errors import ModelError
from outrider.worker.model import hub_cache
from outrider.worker.model.fingerprint import write_atomically
from outrider.worker.model.source import Source

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo

logger = logging.getLogger(__name__)

SOURCE = "source.json"
ID_CHARACTERS = 12
UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class KeptModel:
    """One prepared model."""

    id: str
    """Begin of its folder's name, which follows from its weights."""
    uri: str
    """That it was prepared from last; empty: not known."""
    prepared_bytes: int
    """Of its folder in the cache: converted weights and tokenizer, measured facts."""
    download_bytes: int
    """Of its revision in Hugging Face's cache, which other programs share."""
    changed: float
    """When its folder was written to last, in seconds since 1970."""


def note_source(folder: Path, uri: str) -> None:
    """Write down what a prepared model's folder is of.

    A cache that cannot be written serves all the same.
    """
    if _noted(folder) == uri:
        return
    try:
        write_atomically(folder / SOURCE, json.dumps({"uri": uri}))
    except OSError as error:
        logger.info("%s cannot be noted: %s", uri, error)


def _noted(folder: Path) -> str:
    try:
        return str(json.loads((folder / SOURCE).read_text(encoding="utf-8"))["uri"])
    except (OSError, ValueError, TypeError, KeyError):
        return UNKNOWN


def kept_models(cache: Path) -> list[KeptModel]:
    """Return the prepared models of a cache, by their URIs."""
    repositories = hub_cache.repositories()
    found: list[KeptModel] = []
    for folder in _folders(cache):
        with contextlib.suppress(FileNotFoundError):  # somebody removes it meanwhile
            found.append(_kept(folder, repositories))
    return sorted(found, key=lambda one: (one.uri, one.id))


def remove(cache: Path, wanted: Sequence[str]) -> list[KeptModel]:
    """Remove models by URI, by name or by the beginning of an id, with their downloads; return what
    was removed. Raises `ModelError`, before anything is removed, where none or several fit."""
    kept = kept_models(cache)
    found = list(dict.fromkeys(one for name in wanted for one in _fitting(kept, name)))
    for one in found:
        for folder in _folders(cache):
            if folder.name.startswith(one.id):
                shutil.rmtree(folder)
    freed = _delete_downloads(found, [one for one in kept if one not in found])
    return [one if one.uri in freed else replace(one, download_bytes=0) for one in found]


def _fitting(models: Sequence[KeptModel], wanted: str) -> list[KeptModel]:
    """Return the models of one URI, or the one with an id; raises `ModelError`."""
    named = [one for one in models if wanted and wanted in (one.uri, _name(one.uri))]
    by_id = [one for one in models if len(wanted) >= 4 and one.id.startswith(wanted)]
    several = {one.uri for one in named} if named else {one.id for one in by_id}
    if len(several) > 1:
        raise ModelError(f"model {wanted!r} may be any of: {', '.join(sorted(several))}; name one")
    if not several:
        known = ", ".join(one.uri or one.id for one in models) or "none is kept"
        raise ModelError(f"model {wanted!r} is not kept here; allowed: {known}")
    return named or by_id


def _kept(folder: Path, repositories: "Mapping[str, CachedRepoInfo]") -> KeptModel:
    uri, files = _noted(folder), list(_files(folder))
    revision = _download(uri, repositories)
    return KeptModel(
        id=folder.name[:ID_CHARACTERS],
        uri=uri,
        prepared_bytes=sum(file.st_size for file in files),
        download_bytes=revision.size_on_disk if revision else 0,
        changed=max((file.st_mtime for file in files), default=folder.stat().st_mtime),
    )


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield the state of each file in a folder; those that vanish meanwhile are left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield os.stat(os.path.join(place, name))


def _folders(cache: Path) -> Iterator[Path]:
    """Yield the folders of prepared models; beside them is only what is hidden."""
    models = cache / "models"
    for folder in sorted(models.iterdir()) if models.is_dir() else ():
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def _source(uri: str) -> Source | None:
    """Return what a note says; None where it says nothing, or what this version does not know."""
    try:
        return Source.parse(uri)
    except ModelError:
        return None


def _name(uri: str) -> str:
    source = _source(uri)
    return source.name if source else ""


def _download(
    uri: str, repositories: "Mapping[str, CachedRepoInfo]"
) -> "CachedRevisionInfo | None":
    """Return what was downloaded for a model."""
    source = _source(uri)
    return hub_cache.revision_of(source, repositories) if source else None


def _delete_downloads(removed: Sequence[KeptModel], left: Sequence[KeptModel]) -> set[str]:
    """Delete the downloads of models, except what one that is left was made of, too; return the
    URIs of those whose download is gone."""
    repositories = hub_cache.repositories()
    used = {_download(one.uri, repositories) for one in left}
    own = {one.uri: _download(one.uri, repositories) for one in removed}
    gone = {uri: found for uri, found in own.items() if found and found not in used}
    for revision in set(gone.values()):
        hub_cache.delete(revision)
    return set(gone)


def main(cache: Path, removed: Sequence[str]) -> int:
    """Run `python -m outrider.worker models`: print what is kept, or what was removed, as JSON, or
    an object with the key `error` or `missing`."""
    try:
        found = remove(cache, removed) if removed else kept_models(cache)
    except (ModelError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    except ImportError as error:  # the command line can be installed without workers
        print(json.dumps({"missing": str(error)}), flush=True)
        return 1
    print(json.dumps({"models": [asdict(one) for one in found]}), flush=True)
    return 0
