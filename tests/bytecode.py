"""Modules are compiled once for all processes of a run and of later runs.

Where the environment forbids bytecode beside sources, as container images often do, each of some
two hundred processes would compile all that it imports: half of what its start takes. There it goes
to a folder of the environment's own.
"""

import os
import sys
from pathlib import Path

FOLDER = "PYTHONPYCACHEPREFIX"
FORBIDDEN = "PYTHONDONTWRITEBYTECODE"


def keep() -> None:
    """From now on, in this process and in those that it starts."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(Path(sys.prefix, "bytecode"))
        os.environ.update({FOLDER: sys.pycache_prefix, FORBIDDEN: ""})
