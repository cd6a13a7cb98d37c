"""SHA-256 of model files, remembered by path, size and time of change.

Knows nothing of what the files hold.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total); stages are "download", "hash", "dequantise" and "tokenizer"."""
_CHUNK = 1 << 22


def file_hashes(files: Sequence[Path], cache: Path, progress: Progress) -> list[str]:
    """Return SHA-256 of each file's contents, in hex; reads only files that have changed.

    Progress is in bytes over all files.
    """
    total = sum(file.stat().st_size for file in files)
    before, hashes = 0, []
    for file in files:

        def report(done: int, before: int = before) -> None:
            progress("hash", before + done, total)

        hashes.append(_file_hash(file, cache, report))
        before += file.stat().st_size
    progress("hash", total, total)
    return hashes


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


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def _file_hash(file: Path, cache: Path, progress: Callable[[int], None]) -> str:
    state = file.stat()
    path = str(file.resolve())
    identity = [path, state.st_size, state.st_mtime_ns]
    memo = cache / "hashes" / f"{combined(path)[:32]}.json"
    known = _recall(memo)
    if known is not None and known[:-1] == identity:
        return str(known[-1])
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress(done)
    try:
        write_atomically(memo, json.dumps([*identity, digest.hexdigest()]))
    except OSError as error:  # the next process hashes it again
        logger.info("the hash of %s is not remembered: %s", file, error)
    return digest.hexdigest()


def _recall(memo: Path) -> list[object] | None:
    """Return a remembered hash; an unreadable memo only costs reading the file again."""
    try:
        known = json.loads(memo.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, list) and len(known) == 4 else None


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Ignore progress: of what is short, or was done before."""
