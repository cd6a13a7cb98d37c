"""Tests on an emulated aarch64, on one processor after the other: `make test-arm`.

    python -m tests.arm                                # all three
    python -m tests.arm neon dotprod                   # some of them
    python -m tests.arm i8mm -- tests/unit/kernels/cpu/test_linear.py -x

What follows -- is for pytest, in place of the tests below.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from outrider.kernels.jit.isa import AARCH64, Isa
from tests.arm import bits, emulator
from tests.arm.root import REPOSITORY, ArmError, root

KERNELS = ("tests/unit/kernels/cpu", "--ignore=tests/unit/kernels/cpu/test_aarch64.py")
"""On every processor; what is left out compiles for aarch64 elsewhere."""
ENGINE = (
    "tests/unit/worker/compiled_loop/test_greedy_text.py",
    "tests/unit/worker/link/test_meeting.py",
    "tests/unit/worker/link/test_records.py",
    "tests/unit/worker/link/test_ring.py",
    "tests/unit/worker/link/test_shared_memory.py",
)
"""On the best one."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "tests.arm.choice")


def main() -> int:
    """Exit status 1 and one sentence where the machine cannot be emulated."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    chosen = [Isa(name) for name in words[:end]] or list(AARCH64)
    try:
        files = root()
    except ArmError as error:
        print(f"tests.arm: {error}", file=sys.stderr)
        return 1
    given = words[end + 1 :]
    statuses = [tested(emulator.python(files, own), own, given) for own in chosen]
    if AARCH64[-1] in chosen and not given:
        statuses.append(compared(emulator.python(files, AARCH64[-1])))
    return max(statuses)


def tested(python: Path, own: Isa, given: list[str]) -> int:
    """Run the tests of a processor, or those given; return pytest's exit status."""
    begun = time.monotonic()
    tests = given or [*KERNELS, *(ENGINE if own is AARCH64[-1] else ())]
    status = emulated(python, "-m", "pytest", *OPTIONS, *tests)
    print(f"tests.arm: {own} took {time.monotonic() - begun:.0f} s", flush=True)
    return status


def compared(python: Path) -> int:
    """Say what differs from this machine's bits; the exit status is 1 if any may not."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (Path(folder, f"{name}.npz") for name in ("ours", "theirs"))
        bits.main(str(ours))
        if status := emulated(python, "-m", "tests.arm.bits", str(theirs)):
            return status
        words, allowed = bits.differences(ours, theirs)
    print(f"tests.arm: against this machine: {words}")
    return 0 if allowed else 1


def emulated(python: Path, *arguments: str) -> int:
    """Run the emulated Python in this checkout; return its exit status."""
    command = [str(python), *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=emulator.environment(), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
