"""The version of this software, installed or run from its source."""

import tomllib
from importlib import metadata
from pathlib import Path

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
"""The project's own description, where this file lies in a source tree."""


def version(pyproject: Path = PYPROJECT) -> str:
    """Return the version of the installed package, or that of the source tree it runs from.

    Raises `importlib.metadata.PackageNotFoundError` where there is neither.
    """
    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        if not pyproject.is_file():
            raise
    return str(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["version"])
