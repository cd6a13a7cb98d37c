"""Optional parts of an installation, and what to say where one is missing."""

GUIDE = "docs/how-to/install.md"


def missing_extra(name: str) -> str:
    """Say that an extra is missing, and what installs it."""
    command = f"uv sync --inexact --extra {name}"
    return f"the extra {name} is missing: `{command}` in a checkout ({GUIDE})"
