"""Processors that an emulator shows, one for each instruction set of aarch64, and Python on them.

The emulator ends a process at an instruction that its processor lacks, so code for a better one is
found out. A processor is a folder that has the root's files, a /proc/cpuinfo of its own, and as
`python` a script that starts the emulator: `sys.executable`, so child processes run there, too.
"""

import os
import tomllib
from pathlib import Path
from typing import NamedTuple

from outrider.contract.files import user_cache
from outrider.kernels.jit.isa import Isa
from tests.arm.root import PYTHON, REPOSITORY

EVERY = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
NEOVERSE = f"{EVERY} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp ssbs"
V1 = (
    f"{NEOVERSE} jscvt fcma sha3 sm3 sm4 sha512 sve asimdfhm dit uscat ilrcpc flagm paca pacg "
    "dcpodp svei8mm svebf16 i8mm bf16 dgh rng"
)


class Processor(NamedTuple):
    """One processor."""

    emulated: str
    """The emulator's name of it; "max" has all that V1 has."""
    part: int
    """Arm's number of it, by which LLVM knows it."""
    flags: str
    """As Linux prints them."""


PROCESSORS = {
    Isa.NEON: Processor("cortex-a72", 0xD08, EVERY),
    Isa.DOTPROD: Processor("neoverse-n1", 0xD0C, NEOVERSE),
    Isa.I8MM: Processor("max", 0xD40, V1),  # Neoverse V1
}
CPUINFO = """\
processor\t: 0
BogoMIPS\t: 100.00
Features\t: {flags}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part:#x}
CPU revision\t: 1
"""
SCRIPT = """\
#!/bin/sh
exec qemu-aarch64-static -cpu {emulated} -L {folder} -E PYTHONHOME={root}/usr -0 "$0" \\
    {root}/usr/bin/{python} "$@"
"""


def python(root: Path, own: Isa) -> Path:
    """Return the Python of a processor."""
    folder = root.with_name(f"{root.name}-{own}")
    for part in ("proc", "bin"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for part in ("etc", "lib", "usr"):
        if not (folder / part).is_symlink():
            (folder / part).symlink_to(root / part)
    processor = PROCESSORS[own]
    (folder / "proc" / "cpuinfo").write_text(CPUINFO.format(**processor._asdict()))
    script = folder / "bin" / PYTHON
    script.write_text(
        SCRIPT.format(emulated=processor.emulated, folder=folder, root=root, python=PYTHON)
    )
    script.chmod(0o755)
    return script


def environment() -> dict[str, str]:
    """Return variables with which this checkout runs there; compiled code is kept in the cache."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = [REPOSITORY, *(REPOSITORY / name for name in project["dev-mode-dirs"])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "NUMBA_CACHE_DIR": str(user_cache() / "arm" / "compiled"),
        "OMP_NUM_THREADS": "1",
    }
