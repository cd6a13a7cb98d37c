# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["aider-chat==0.86.2"]
# ///
"""aider, the command: an edit that comes as a whole file, and one that comes as a difference."""

import os
import subprocess
import tempfile
from pathlib import Path

from cases import BEFORE, EDIT, say

OPTIONS = (
    "--no-git",
    "--yes-always",
    "--no-check-update",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--map-tokens=0",
)
HERE = {"OPENAI_API_BASE": os.environ["BASE_URL"], "OPENAI_API_KEY": "none"}

for form in ("whole", "diff"):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hello.py"
        file.write_text(BEFORE)
        model = f"openai/{os.environ['MODEL']}"
        asked = ("--model", model, "--edit-format", form, "--message", EDIT, file.name)
        subprocess.run(
            ["aider", *OPTIONS, *asked],
            cwd=folder,
            env={**os.environ, **HERE, "HOME": folder},
            check=True,
            capture_output=True,
        )
        say(form, file.read_text())
