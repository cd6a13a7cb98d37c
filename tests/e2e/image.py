"""One small container image, made here: busybox, and nothing else.

    write(Path("/bin/busybox"), Path("image.tar"))   # ctr images import image.tar

Pods that run more mount it from the machine. Sandboxes run its entry point, which only waits.
"""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

NAME = "localhost/outrider-e2e:1"
WAIT = ["/bin/busybox", "sleep", "2147483647"]
LINKS = ("sh", "sleep", "cat", "ls", "env", "id")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(busybox: Path, to: Path) -> None:
    """Writes the image as a docker archive of one layer."""
    layer = _layer(busybox)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(_config(digest)).encode()
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
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
        for name in LINKS:
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(member)
    return content.getvalue()


def _config(digest: str) -> dict[str, object]:
    machine = platform.machine()
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": WAIT, "Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
