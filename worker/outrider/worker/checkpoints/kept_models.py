"""Models that are kept on this machine: what was prepared of them, and what was downloaded.

A prepared model's folder says which URIs it is of: several, where they have the same content.
Those of older versions name one or none. Leaves preparing to `prepare`, and Hugging Face's cache,
where downloads lie, to `hub_cache`.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.worker.checkpoints import hub_cache
from outrider.worker.checkpoints.fingerprint import write_atomically
from outrider.worker.checkpoints.source import Source
from outrider.worker.errors import ModelError

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo

logger = logging.getLogger(__name__)

SOURCE = "source.json"
ID_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class KeptModel:
    """One prepared model."""

    id: str
    """Begin of its folder's name, which follows from its weights."""
    uris: tuple[str, ...]
    """That it was prepared from, which have the same content; empty: not known."""
    prepared_bytes: int
    """Of its folder in the cache: converted weights and tokenizer, measured facts."""
    download_bytes: int
    """Of its revisions in Hugging Face's cache, which other programs share."""
    changed: float
    """When its folder was written to last, in seconds since 1970."""


def note_source(folder: Path, uri: str) -> None:
    """Write down what a prepared model's folder is of.

    A cache that cannot be written serves all the same.
    """
    noted = _noted(folder)
    if uri in noted:
        return
    try:
        write_atomically(folder / SOURCE, json.dumps({"uris": [*noted, uri]}))
    except OSError as error:
        logger.info("%s cannot be noted: %s", uri, error)


def _noted(folder: Path) -> tuple[str, ...]:
    try:
        note = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
        return tuple(map(str, note["uris"] if "uris" in note else [note["uri"]]))
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def kept_models(cache: Path) -> list[KeptModel]:
    """Return the prepared models of a cache, by their URIs."""
    repositories = hub_cache.repositories()
    found: list[KeptModel] = []
    for folder in _folders(cache):
        with contextlib.suppress(FileNotFoundError):  # somebody removes it meanwhile
            found.append(_kept(folder, repositories))
    return sorted(found, key=lambda one: (one.uris, one.id))


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
    return [
        replace(one, download_bytes=bytes_freed)
        for one, bytes_freed in zip(found, freed, strict=True)
    ]


def _fitting(models: Sequence[KeptModel], wanted: str) -> list[KeptModel]:
    """Return the models of one URI, or the one with a name or an id; raises `ModelError`."""
    named = {one: uris for one in models if (uris := _uris_of(one, wanted))}
    if len(named) > 1 and not set.intersection(*named.values()):
        raise _ambiguous(wanted, set.union(*named.values()))
    by_id = [one for one in models if len(wanted) >= 4 and one.id.startswith(wanted)]
    if not named and len(by_id) > 1:
        raise _ambiguous(wanted, {one.id for one in by_id})
    if not named and not by_id:
        known = ", ".join(name for one in models for name in one.uris or (one.id,))
        known = known or "none is kept"
        raise ModelError(f"model {wanted!r} is not kept here; allowed: {known}")
    return [*named] or by_id


def _uris_of(model: KeptModel, wanted: str) -> set[str]:
    """Return the URIs of a model that are the wanted one, or have it as their name."""
    return {uri for uri in model.uris if wanted and wanted in (uri, _name(uri))}


def _ambiguous(wanted: str, several: set[str]) -> ModelError:
    return ModelError(f"model {wanted!r} may be any of: {', '.join(sorted(several))}; name one")


def _kept(folder: Path, repositories: "Mapping[str, CachedRepoInfo]") -> KeptModel:
    uris, files = _noted(folder), list(_files(folder))
    return KeptModel(
        id=folder.name[:ID_CHARACTERS],
        uris=uris,
        prepared_bytes=sum(file.st_size for file in files),
        download_bytes=_size(_downloads(uris, repositories)),
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


def _downloads(
    uris: Sequence[str], repositories: "Mapping[str, CachedRepoInfo]"
) -> "set[CachedRevisionInfo]":
    """Return what was downloaded for a model."""
    sources = filter(None, map(_source, uris))
    return {found for one in sources if (found := hub_cache.revision_of(one, repositories))}


def _size(revisions: "Iterable[CachedRevisionInfo]") -> int:
    return sum(one.size_on_disk for one in revisions)


def _delete_downloads(removed: Sequence[KeptModel], left: Sequence[KeptModel]) -> list[int]:
    """Delete the downloads of models, except what one that is left was made of, too; return the
    bytes that are gone with each."""
    repositories = hub_cache.repositories()
    used = {found for one in left for found in _downloads(one.uris, repositories)}
    gone = [_downloads(one.uris, repositories) - used for one in removed]
    for revision in {revision for one in gone for revision in one}:
        hub_cache.delete(revision)
    return [_size(one) for one in gone]


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
