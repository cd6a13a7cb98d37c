"""numba's `njit`, with a cache of compiled code that notices every change of a source.

numba itself looks only at the file of the function that is compiled, not at those that it calls: a
changed callee in another file would go unnoticed. So each state of the sources has its own folder,
in `NUMBA_CACHE_DIR` or the user's cache; where that cannot be written, numba finds another place.
"""

import hashlib
import os
from functools import partial
from pathlib import Path

import llvmlite.binding
import numba

import outrider
from outrider.kernels import isa

COMPILED = (
    ("kernels/*.py", b""),
    ("kernels/cpu/*.py", b""),
    ("kernels/sampling/*.py", b""),
    ("worker/**/*.py", b"njit"),
)
"""Files of the namespace with compiled functions, and what each of them contains."""


def folder() -> Path:
    """Return the folder of code compiled from these very sources for this instruction set."""
    digest = hashlib.sha256(isa.feature_string().encode())
    for portion in sorted(outrider.__path__):
        for pattern, mark in COMPILED:
            for source in sorted(Path(portion).glob(pattern)):
                if mark in (text := source.read_bytes()):
                    name = source.relative_to(portion).as_posix()
                    digest.update(name.encode() + b"\0" + text + b"\0")
    given = os.environ.get("NUMBA_CACHE_DIR")
    parent = Path(given) if given else Path.home() / ".cache" / "outrider" / "compiled"
    return parent / digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(folder())
if isa.features() != dict(llvmlite.binding.get_host_cpu_features()):
    numba.config.CPU_FEATURES = isa.feature_string()

njit = partial(numba.njit, cache=True, nogil=True)
"""Compiles on first call, keeps the result on disk, holds no interpreter lock while it runs."""
