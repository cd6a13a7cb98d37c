"""Entry point of the `outrider` command, whose modules take a second to import.

Bytecode of imported modules is kept in the user's cache where it may not lie beside the sources:
container images often set PYTHONDONTWRITEBYTECODE, and each process then compiles all that it
imports, more than half of what its start takes, unless that was done when it was installed.
"""

import os
import sys

FOLDER = "PYTHONPYCACHEPREFIX"
FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def main() -> None:
    """Run the command; a Ctrl-C before it has begun is one line."""
    try:
        keep_bytecode()
        from outrider.cli.app import main as run
    except KeyboardInterrupt:
        from outrider.cli.failures import stop

        stop()
    run()


def keep_bytecode() -> None:
    """Keep it for this process and for those that it starts, unless it is there already or has a
    folder; or none can be had: with one, Python reads no bytecode beside sources."""
    cached = __spec__.cached if __spec__ is not None else None
    installed = cached is not None and os.path.exists(cached)
    if sys.dont_write_bytecode and sys.pycache_prefix is None and not installed:
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


if __name__ == "__main__":
    main()
