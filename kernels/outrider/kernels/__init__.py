"""Compute kernels, each beside its plain reference; on a CPU they are compiled by numba.

Numba remembers compiled functions by their own file alone, so a changed callee in another file
would go unnoticed: here what is remembered lies in a folder named by all of these sources. It is in
`NUMBA_CACHE_DIR`, or the user's cache; where that cannot be written, numba finds another place.
"""

import hashlib
import os
from pathlib import Path

import numba


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.name.encode() + file.read_bytes())
    given = os.environ.get("NUMBA_CACHE_DIR")
    parent = Path(given) if given else Path.home() / ".cache" / "outrider" / "numba"
    return str(parent / digest.hexdigest()[:16])


numba.config.CACHE_DIR = _cache_folder()
