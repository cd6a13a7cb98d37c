"""The project's own images, as archives that a node takes: built by buildah on packages of Debian.

    build(Path("archives"))      # {name: archive}

Needs the package indexes that pip, uv and apt ask, and no registry of images.
"""

import os
import subprocess
import tomllib
from pathlib import Path

from tests.e2e.image import OPERATOR, WORKER

ROOT = Path(__file__).parents[2]
BASE = "localhost/outrider-e2e-base"
RELEASE = "bookworm"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
SETTINGS = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot", "BUILDER": "buildah"}
"""Settings of a buildah that runs as root wherever a node can."""
FROM_THE_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs", "/root/.config/pip", "/root/.config/uv")
"""Where packages come from, and whom to trust: lent to the builds, not part of the images."""


class BuildError(RuntimeError):
    """An image could not be built; the message ends with what the builder said."""


def build(folder: Path) -> dict[str, Path]:
    """Build both images on Debian's Python; raises `BuildError`."""
    if not _says("buildah", "images", "--quiet", "--filter", f"reference={BASE}"):
        _build_base(folder)
    lent = [f"--volume={path}:{path}:ro" for path in FROM_THE_MACHINE if Path(path).exists()]
    options = " ".join(("--network=host", *lent))
    _says("tools/images", "localhost/", "cpu", "", BASE=BASE, BUILD_OPTIONS=options)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    archives = {}
    for name in (OPERATOR, WORKER):
        repository = name.rpartition(":")[0]
        archive = folder / f"{repository.rpartition('/')[2]}.tar"
        _says("buildah", "push", f"{repository}:{version}", f"docker-archive:{archive}:{name}")
        archives[name] = archive
    return archives


def _build_base(folder: Path) -> None:
    """Build an image of Debian's Python, which pip may install into."""
    archive = folder / "base.tar"
    _says("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(archive))
    container = _says("buildah", "from", "scratch")
    _says("buildah", "add", container, str(archive), "/")
    allow = "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"
    _says("buildah", "run", container, "--", "sh", "-c", allow)
    if trusted := os.environ.get("SSL_CERT_FILE"):
        _says("buildah", "config", f"--env=SSL_CERT_FILE={trusted}", container)
    _says("buildah", "commit", "--rm", container, BASE)
    archive.unlink()


def _says(*command: str, **environment: str) -> str:
    """Return what a command prints; raises `BuildError`."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **SETTINGS, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command[:2])}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout.strip()
