"""File of the memory that a target and a draft share: it has no name, and cannot be shrunk.

Leaves what lies in it to `ring`, and how it reaches the other process to `meeting`.
"""

import fcntl
import os
import sys

from outrider.worker.errors import LinkBroken

RING_BYTES = 1 << 18
"""Of each ring: some 60 passes of 64 sessions. Longer messages pass through it in pieces."""
HEAD_BYTES = 4096
"""Of words, before the rings."""
SEAL_EXEC = 0x20
"""F_SEAL_EXEC, which a system may set on every such file (`vm.memfd_noexec`); does no harm."""
FILE_BYTES = HEAD_BYTES + 2 * RING_BYTES


def require() -> None:
    """Raise `LinkBroken` on a system without such files."""
    if sys.platform != "linux":
        raise LinkBroken(f"{sys.platform} has no files without a name that can be sealed")


def create() -> int:
    """Open a file for two rings, all of it in memory; raise `LinkBroken`, saying why not."""
    require()
    try:
        descriptor = os.memfd_create("outrider-link", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise LinkBroken(f"no memory can be shared: {error.strerror}") from None
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)  # now, or a write would end the process
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _seals())
    except OSError as error:
        os.close(descriptor)
        raise LinkBroken(
            f"{FILE_BYTES >> 10} KiB of memory cannot be shared: {error.strerror}"
        ) from None
    return descriptor


def check(descriptor: int) -> None:
    """Raise `LinkBroken` for a file that can shrink, cannot be written, or has another size."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise LinkBroken("what was handed over is no memory that can be sealed") from None
    size = os.fstat(descriptor).st_size
    if seals & ~SEAL_EXEC != _seals() or size != FILE_BYTES:
        raise LinkBroken(f"memory of {size} bytes with seals {seals:#x} was handed over")


def _seals() -> int:
    """Return the promise that its size stays, for good; Linux only."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
