"""File of the memory that a target and a draft share: it has no name, and cannot be shrunk.

Linux seals it. Elsewhere it is POSIX shared memory, whose size macOS lets nobody set twice; whether
a peer handed over such memory cannot be told there, so the two processes have to be of one user who
trusts both. Leaves what lies in it to `ring`, and how it reaches the other process to `meeting`.
"""

import _posixshmem  # what multiprocessing.shared_memory opens with, which keeps a name
import fcntl
import os
import secrets
import sys

from outrider.worker.errors import LinkBroken

RING_BYTES = 1 << 18
"""Bytes of each ring: some 60 passes of 64 sessions. Longer messages pass through it in pieces."""
HEAD_BYTES = 4096
"""Bytes of words, before the rings."""
SEAL_EXEC = 0x20
"""F_SEAL_EXEC, which a system may set on every such file (`vm.memfd_noexec`); does no harm."""
FILE_BYTES = HEAD_BYTES + 2 * RING_BYTES


def create() -> int:
    """Open a file for two rings, all of it in memory; raise `LinkBroken`, saying why not."""
    try:
        descriptor = _open()
    except OSError as error:
        raise LinkBroken(f"no memory can be shared: {error.strerror}") from None
    try:
        _fix_size(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise LinkBroken(
            f"{FILE_BYTES >> 10} KiB of memory cannot be shared: {error.strerror}"
        ) from None
    return descriptor


def check(descriptor: int) -> None:
    """Raise `LinkBroken` for a file of another size or, on Linux, one that can shrink or cannot be
    written."""
    size = os.fstat(descriptor).st_size
    if sys.platform != "linux":
        if size < FILE_BYTES:  # macOS has whole pages
            raise LinkBroken(f"memory of {size} bytes was handed over")
        return
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise LinkBroken("what was handed over is no memory that can be sealed") from None
    sealed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    if seals & ~SEAL_EXEC != sealed or size != FILE_BYTES:
        raise LinkBroken(f"memory of {size} bytes with seals {seals:#x} was handed over")


def _open() -> int:
    """Open an empty file that has no name."""
    if sys.platform == "linux":
        return os.memfd_create("outrider-link", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    name = f"/outrider-{secrets.token_hex(8)}"
    descriptor: int = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _posixshmem.shm_unlink(name)
    return descriptor


def _fix_size(descriptor: int) -> None:
    """Give a file its size, for good."""
    if sys.platform != "linux":
        os.ftruncate(descriptor, FILE_BYTES)
        return
    os.posix_fallocate(descriptor, 0, FILE_BYTES)  # now, or a write would end the process
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
