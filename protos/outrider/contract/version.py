"""The installed software: its version, and what to say where an optional part is missing."""

import tomllib
from importlib import metadata
from pathlib import Path

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
"""The project's own description, where this file lies in a source tree."""
GUIDE = "docs/how-to/install.md"


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


def missing_extra(name: str) -> str:
    """Say that an extra is missing, and what installs it."""
    command = f"uv sync --inexact --extra {name}"
    return f"the extra {name} is missing: `{command}` in a checkout ({GUIDE})"
