"""The small image of a pod's sandbox, made here: busybox, a user, and an entry point.

write(SANDBOX, WAIT, Path("/bin/busybox"), Path("image.tar"))   # ctr images import image.tar
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path

TAG = "e2e"
SANDBOX, OPERATOR, WORKER = (
    f"localhost/{name}:{TAG}" for name in ("sandbox", "outrider-operator", "outrider-worker")
)
USERS = "root:x:0:0::/:/bin/sh\noutrider:x:65532:65532::/:/bin/sh\n"
WAIT = ["/bin/busybox", "sleep", "2147483647"]
LINKS = ("sh", "sleep", "cat", "ls", "env", "id")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(name: str, entry_point: Sequence[str], busybox: Path, to: Path) -> None:
    """Writes an image as a docker archive of one layer."""
    layer = _layer(busybox)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(_config(digest, entry_point)).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(to, "w") as archive:
        _add(archive, "config.json", config)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, mode
            layer.addfile(member)
        _add(layer, "bin/busybox", busybox.read_bytes(), mode=0o755)
        _add(layer, "etc/passwd", USERS.encode())
        for name in LINKS:
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(member)
    return content.getvalue()


def _config(digest: str, entry_point: Sequence[str]) -> dict[str, object]:
    machine = platform.machine()
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": list(entry_point), "Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
