"""Files of an aarch64 machine: Debian's Python, and wheels of the versions that uv.lock names.

Nothing is installed outside the user's cache. Leaves processors, and what runs on them, to
`emulator`.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from outrider.contract.files import user_cache

REPOSITORY = Path(__file__).parents[2]
RELEASE = "bookworm"
PACKAGES = ("python3.11", "libstdc++6", "libgomp1")
PYTHON = "python3.11"
"""Python of the release."""
WHEELS = Path("usr", "lib", "python3", "dist-packages")
"""Where Debian's Python looks for packages of others."""
PLATFORM = "aarch64-manylinux_2_31"
EXPORT = ("export", "--locked", "--quiet", "--no-emit-project", "--no-default-groups",
          "--extra", "worker", "--group", "test")  # fmt: skip
NEEDED = {"mmdebstrap": "mmdebstrap", "qemu-aarch64-static": "qemu-user-static"}
"""Programs, and the packages of Debian and Ubuntu that have them."""


class ArmError(Exception):
    """What is missing here, in a sentence."""


def require_programs() -> None:
    """Raise `ArmError` where a program is missing."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        raise ArmError(
            f"an aarch64 machine is not emulated here without {' and '.join(missing)}: "
            f"`apt-get install {' '.join(missing)}`"
        )


def root() -> Path:
    """Return the folder, made if it is not there; raise `ArmError`."""
    require_programs()
    uv = _says(str(REPOSITORY / "tools" / "bootstrap")).strip()
    wanted = _says(uv, *EXPORT)
    digest = hashlib.sha256(repr((RELEASE, PACKAGES, PLATFORM, wanted)).encode()).hexdigest()
    folder = user_cache() / "arm" / digest[:12]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "root")
            _make(made, uv, wanted)
            os.rename(made, folder)
    return folder


def _make(folder: Path, uv: str, wanted: str) -> None:
    packages = f"--include={','.join(PACKAGES)}"
    _says("mmdebstrap", "--variant=extract", "--arch=arm64", packages, RELEASE, str(folder))
    requirements = folder.with_name("requirements.txt")
    requirements.write_text(wanted)
    of = ("--python-platform", PLATFORM, "--python-version", PYTHON.removeprefix("python"))
    to = ("--target", str(folder / WHEELS), "--requirements", str(requirements))
    _says(uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", *of, *to)


def _says(*command: str) -> str:
    """Return what a command prints; raise `ArmError` with what it complains of."""
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArmError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
