"""Bytecode of imported modules, kept in the user's cache where it may not lie beside the sources.

Container images often set PYTHONDONTWRITEBYTECODE. Unless what they install is compiled already,
each process then compiles all that it imports: more than half of what its start takes.
"""

import os
import sys

FOLDER = "PYTHONPYCACHEPREFIX"
FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def keep() -> None:
    """Keep it for this process and for those that it starts, unless it is there already or has a
    folder; or none can be had: with one, Python reads no bytecode beside sources."""
    if sys.dont_write_bytecode and sys.pycache_prefix is None and not _is_there():
        from outrider.contract.files import user_cache

        try:
            folder = user_cache() / "bytecode"
            folder.mkdir(exist_ok=True)
        except OSError:  # there is neither a home nor a folder for temporary files to write to
            return
        if not os.access(folder, os.W_OK):
            return
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)
        os.environ.update({FOLDER: str(folder), FORBIDDEN: ""})


def _is_there() -> bool:
    """True if the environment was compiled when it was installed."""
    compiled = __spec__.cached if __spec__ is not None else None
    return compiled is not None and os.path.exists(compiled)
