"""numba's `njit`, with a cache of compiled code that notices every change of a source.

numba itself looks only at the file of the function that is compiled, not at those that it calls: a
changed callee in another file would go unnoticed. So each state of the sources has its own folder.
"""

import hashlib
from functools import cache, partial
from pathlib import Path

import numba

import outrider

COMPILING_PORTIONS = ("kernels", "worker")
"""Portions of the namespace that hold compiled functions."""
MARK = b"njit"
"""What every file with compiled functions contains."""


@cache
def folder() -> Path:
    """Where code compiled from these very sources is kept."""
    digest = hashlib.sha256()
    for portion in sorted(outrider.__path__):
        for name in COMPILING_PORTIONS:
            for source in sorted((Path(portion) / name).glob("*.py")):
                if MARK in (text := source.read_bytes()):
                    digest.update(source.name.encode() + b"\0" + text + b"\0")
    return Path.home() / ".cache" / "outrider" / "compiled" / digest.hexdigest()[:16]


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = str(folder())

njit = partial(numba.njit, cache=True, nogil=True)
"""Compiles on first call, keeps the result on disk, and holds no interpreter lock while it runs."""
