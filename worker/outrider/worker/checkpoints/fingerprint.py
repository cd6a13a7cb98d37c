"""SHA-256 of model files, remembered by path, size and time of change.

Knows nothing of what the files hold.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from outrider.worker.host.disk_cache import remember, remembered

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total); stages are "download", "hash" and "tokenizer"."""
HASHES = "hashes"
"""Folder of the cache."""
_CHUNK = 1 << 22
_FIELD = "sha256"


def file_hashes(files: Sequence[Path], cache: Path, progress: Progress) -> list[str]:
    """Return SHA-256 of each file's contents, in hex; reads only files that have changed.

    Progress is in bytes over all files.
    """
    total = sum(file.stat().st_size for file in files)
    done, hashes = 0, []
    for file in files:
        state, memo = file.stat(), memo_of(file, cache)
        known = remembered(memo, lambda facts: str(facts[_FIELD]))
        if known is None:
            digest = hashlib.sha256()
            with file.open("rb") as opened:
                while chunk := opened.read(_CHUNK):
                    digest.update(chunk)
                    progress("hash", min(done + opened.tell(), total), total)
            known = digest.hexdigest()
            remember(memo, {_FIELD: known})
        hashes.append(known)
        done += state.st_size
    progress("hash", total, total)
    return hashes


def memo_of(file: Path, cache: Path) -> Path:
    """Return the file that remembers the hash of a file as it is now."""
    state = file.stat()
    identity = (str(file.resolve()), str(state.st_size), str(state.st_mtime_ns))
    return cache / HASHES / f"{combined(*identity)[:32]}.json"


def weights_sha256(files: Sequence[Path], cache: Path, progress: Progress) -> str:
    """Return SHA-256 of a model's weights, in hex: of the file, or of all hashes where there are
    several."""
    hashes = file_hashes(files, cache, progress)
    return hashes[0] if len(hashes) == 1 else combined(*hashes)


def combined(*parts: str | bytes) -> str:
    """Return SHA-256 over parts, each with its length before it, in hex."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Ignore progress: of what is short, or was done before."""
