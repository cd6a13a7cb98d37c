"""Hugging Face's own cache, which other programs share: the downloaded revisions of models.

Leaves downloading to `download`, and what is kept for which model to `kept_models`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.worker.checkpoints.source import Scheme, Source

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo

DEFAULT_REVISION = "main"


def repositories() -> "dict[str, CachedRepoInfo]":
    """Return the models that are there, by their repository."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        found = scan_cache_dir()
    except (CacheNotFound, ValueError):  # ValueError: a file lies where the cache would
        return {}
    return {one.repo_id: one for one in found.repos if one.repo_type == "model"}


def revision_of(
    source: Source, repositories: "Mapping[str, CachedRepoInfo]"
) -> "CachedRevisionInfo | None":
    """Return the revision that a URI names by its commit or by a branch or tag; None: not there."""
    repository = repositories.get(source.place) if source.scheme is Scheme.HF else None
    wanted = source.detail or DEFAULT_REVISION
    for revision in repository.revisions if repository else ():
        if wanted == revision.commit_hash or wanted in revision.refs:
            return revision
    return None


def delete(revision: "CachedRevisionInfo") -> None:
    """Delete a revision: the files that no other one of its repository has, and what names it."""
    from huggingface_hub import scan_cache_dir

    folder, found = revision.snapshot_path.parents[1], scan_cache_dir()
    own = frozenset(one for one in found.repos if one.repo_path == folder)
    alone = replace(found, repos=own)  # a copy of the repository has the same hashes
    alone.delete_revisions(revision.commit_hash).execute()
