"""The project's uv, which runs and installs what a benchmark has to have beside it."""

import subprocess
from pathlib import Path

BOOTSTRAP = Path(__file__).parents[2] / "tools" / "bootstrap"


def uv() -> str:
    """Return its path; it is installed if there is none."""
    done = subprocess.run([BOOTSTRAP], check=True, capture_output=True, text=True)
    return done.stdout.strip()
