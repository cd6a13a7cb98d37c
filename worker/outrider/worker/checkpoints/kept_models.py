"""Models that are kept on this machine: what was prepared of them, and what was downloaded.

A prepared model's folder says which URIs it is of: several, where they have the same content. While
a model is fetched, a folder says so that holds nothing else. Downloads lie in Hugging Face's cache,
which other programs share. Leaves preparing to `prepare`, and what is printed to `launch.kept`.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.worker.checkpoints.download import CONFIG
from outrider.worker.checkpoints.fingerprint import combined
from outrider.worker.checkpoints.partial_file import ENDING
from outrider.worker.checkpoints.prepared import CHECKPOINT
from outrider.worker.checkpoints.source import ModelSource, Scheme
from outrider.worker.errors import ModelError
from outrider.worker.host.disk_cache import remember, remembered

if TYPE_CHECKING:
    from huggingface_hub import CachedRevisionInfo

MODELS, PULLS = "models", "pulls"
"""Folders of the cache: of models that are prepared, and of those that are fetched."""
SOURCE, ENDS = "source.json", "end_tokens.json"
ID_CHARACTERS = 12
DEFAULT_REVISION = "main"


@dataclass(frozen=True, slots=True)
class KeptModel:
    """One prepared model."""

    folder: Path
    """Converted weights and tokenizer, measured facts; its name follows from the weights."""
    uris: tuple[str, ...]
    """Sources that have this content; empty: not known."""
    prepared_bytes: int
    """Size of the folder."""
    end_tokens: tuple[str, ...]
    """Tokens at which answers end; empty: not known."""
    changed: float
    """Time of the last change in the folder, in seconds since 1970."""
    downloads: "frozenset[CachedRevisionInfo]"
    """Revisions in Hugging Face's cache."""
    parts: tuple[tuple[Path, int], ...]
    """Files there of which a part has come, and its bytes."""

    @property
    def is_whole(self) -> bool:
        """False for one whose download was cut, or goes on."""
        return self.folder.parent.name == MODELS

    @property
    def directory(self) -> Path | None:
        """Folder of its config.json: its own, a download, or the one that its URI names."""
        own = self.folder / CHECKPOINT
        places = [own, *(one.snapshot_path for one in self.downloads)]
        places += [Path(one.place) for one in map(_source, self.uris) if one.scheme is Scheme.FILE]
        return next((place for place in places if (place / CONFIG).is_file()), None)

    @property
    def download_bytes(self) -> int:
        """Size in Hugging Face's cache."""
        whole = sum(one.size_on_disk for one in self.downloads)
        return whole + sum(size for _, size in self.parts)

    @property
    def id(self) -> str:
        """Begin of the folder's name."""
        return self.folder.name[:ID_CHARACTERS]

    def uris_of(self, wanted: str) -> set[str]:
        """Return those of its URIs that are the wanted one, or have it as their name."""
        return {uri for uri in self.uris if wanted == uri or wanted == _source(uri).name}

    def to_fields(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.id,
            "uris": self.uris,
            "prepared_bytes": self.prepared_bytes,
            "download_bytes": self.download_bytes,
            "is_whole": self.is_whole,
            "end_tokens": self.end_tokens,
            "changed": self.changed,
        }


def note_source(folder: Path, uri: str) -> None:
    """Write down what a prepared model's folder is of, where that can be written."""
    noted = _noted(folder, SOURCE, "uris")
    if uri not in noted:
        remember(folder / SOURCE, {"uris": [*noted, uri]})


def note_pull(cache: Path, uri: str) -> None:
    """Write down that a model is fetched: what comes of it is removed with it."""
    note_source(_pull(cache, uri), uri)


def forget_pull(cache: Path, uri: str) -> None:
    """Remove the note of a model that is there."""
    if (folder := _pull(cache, uri)).is_dir():
        shutil.rmtree(folder, ignore_errors=True)


def _pull(cache: Path, uri: str) -> Path:
    return cache / PULLS / combined(uri)[:32]


def note_ends(folder: Path, ids: Sequence[int], name: Callable[[], Callable[[int], str]]) -> None:
    """Write down at which tokens a prepared model's answers end, where that can be written; `name`
    makes what names a token, and is not called where these ids are noted."""
    if _noted(folder, ENDS, "ids") != tuple(map(str, ids)):
        remember(folder / ENDS, {"ids": list(ids), "tokens": list(map(name(), ids))})


def kept_models(cache: Path) -> list[KeptModel]:
    """Return the prepared models of a cache, by their URIs."""
    revisions = _revisions()
    found: list[KeptModel] = []
    for folder in (*(cache / MODELS).glob("*"), *(cache / PULLS).glob("*")):
        if folder.is_dir() and not folder.name.startswith("."):
            with contextlib.suppress(FileNotFoundError):  # somebody removes it meanwhile
                found.append(_kept(folder, revisions))
    return sorted(found, key=lambda one: (one.uris, one.id))


def remove(cache: Path, wanted: Sequence[str]) -> list[KeptModel]:
    """Remove models by URI, by name or by the beginning of an id, with the downloads that no other
    model was made of; return what was removed.

    Raises `ModelError`, before anything is removed, where none or several fit.
    """
    kept = kept_models(cache)
    found = dict.fromkeys(one for name in wanted for one in _fitting(kept, name))
    used = {download for one in kept if one not in found for download in one.downloads}
    removed = [replace(one, downloads=one.downloads - used) for one in found]
    for one in removed:
        shutil.rmtree(one.folder)
    for part in {part for one in removed for part, _ in one.parts}:
        part.unlink(missing_ok=True)
    for revision in {download for one in removed for download in one.downloads}:
        _delete(revision)
    return removed


def _fitting(models: Sequence[KeptModel], wanted: str) -> list[KeptModel]:
    """Return the models of one URI, or the one with a name or an id; raises `ModelError`."""
    named = {one: uris for one in models if (uris := one.uris_of(wanted))}
    by_id = [one for one in models if len(wanted) >= 4 and one.id.startswith(wanted)]
    several: set[str] = set()
    if len(named) > 1 and not set.intersection(*named.values()):
        several = set.union(*named.values())
    elif not named and len(by_id) > 1:
        several = {one.id for one in by_id}
    if several:
        raise ModelError(f"model {wanted!r} may be any of: {', '.join(sorted(several))}; name one")
    if not named and not by_id:
        known = [name for one in models for name in one.uris or (one.id,)]
        near = sorted(known, key=lambda name: -SequenceMatcher(None, wanted, name).ratio())
        allowed = "".join(f"\n  {name}" for name in near) or " none is kept"
        raise ModelError(f"model {wanted!r} is not kept here; allowed:{allowed}")
    return [*named] or by_id


def _noted(folder: Path, name: str, key: str) -> tuple[str, ...]:
    return remembered(folder / name, lambda facts: tuple(map(str, facts[key]))) or ()


def _kept(folder: Path, revisions: "Mapping[tuple[str, str], CachedRevisionInfo]") -> KeptModel:
    uris, files = _noted(folder, SOURCE, "uris"), list(_files(folder))
    sources = [one for one in map(_source, uris) if one.scheme is Scheme.HF]
    names = [(one.place, one.detail or DEFAULT_REVISION) for one in sources]
    downloads = frozenset(revisions[name] for name in names if name in revisions)
    is_cut = folder.parent.name == PULLS
    return KeptModel(
        folder=folder,
        uris=uris,
        prepared_bytes=sum(file.st_size for file in files),
        end_tokens=_noted(folder, ENDS, "tokens"),
        changed=max((file.st_mtime for file in files), default=folder.stat().st_mtime),
        downloads=downloads,
        parts=tuple(part for one in downloads for part in _parts(one) if is_cut),
    )


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield the state of each file in a folder; links, which lead to a model's own file, and those
    that vanish meanwhile are left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(place, name)
            with contextlib.suppress(FileNotFoundError):
                if not os.path.islink(file):
                    yield os.stat(file)


def _source(uri: str) -> ModelSource:
    """Return what a note says; nothing where this version does not know its form."""
    try:
        return ModelSource.parse(uri)
    except ModelError:
        return ModelSource(uri, Scheme.FILE, uri)


def _revisions() -> "dict[tuple[str, str], CachedRevisionInfo]":
    """Return the downloaded revisions of models, by repository and commit, branch or tag."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        found = scan_cache_dir()
    except (CacheNotFound, ValueError):  # ValueError: a file lies where the cache would
        return {}
    return {
        (repository.repo_id, name): revision
        for repository in found.repos
        if repository.repo_type == "model"
        for revision in repository.revisions
        for name in (revision.commit_hash, *revision.refs)
    }


def _parts(revision: "CachedRevisionInfo") -> Iterator[tuple[Path, int]]:
    """Yield the files of a revision's repository of which a part has come, and its bytes."""
    for part in (revision.snapshot_path.parents[1] / "blobs").glob(f"*{ENDING}"):
        with contextlib.suppress(FileNotFoundError):  # it is whole meanwhile
            yield part, part.stat().st_size


def _delete(revision: "CachedRevisionInfo") -> None:
    """Delete a revision: the files that no other one of its repository has, and what names it."""
    from huggingface_hub import scan_cache_dir

    folder, found = revision.snapshot_path.parents[1], scan_cache_dir()
    own = frozenset(one for one in found.repos if one.repo_path == folder)
    alone = replace(found, repos=own)  # a copy of the repository has the same hashes
    alone.delete_revisions(revision.commit_hash).execute()
