"""Python as it is where torch and triton are not installed, for processes with this on their path.

Python imports a module of this name at its start. Searches of modules then find neither of the two,
nor what the variable `ABSENT` names besides, whether to import them or to ask for them.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

ABSENT = ("torch", "triton", *os.environ.get("ABSENT", "").split())


class Torchless(PathFinder):
    """Finds all modules but those of `ABSENT`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for what is absent, as for what nobody has installed."""
        if fullname.partition(".")[0] in ABSENT:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Torchless
