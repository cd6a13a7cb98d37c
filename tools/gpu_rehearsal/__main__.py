"""Stages of a device without one: `python -m tools.gpu_rehearsal`.

Needs torch and triton 3.6 or newer, and no GPU; a plain GPU environment
(`bench/gpu/environment.txt`) is enough. Each stage runs in processes of its own. Ends with status
1 where a test cannot be collected, or a kernel does not compile or does not fit.

The folder of compiled kernels serves any checkout at the same commit, with the same triton, where
commands run in the checkout's root and TRITON_CACHE_DIR is its relative path.

examples:
  python -m tools.gpu_rehearsal           # then on the device: TRITON_CACHE_DIR=.gpu-kernels
  python -m tools.gpu_rehearsal           # again: every kernel is found, none compiled
  python -m tools.gpu_rehearsal --stages B,E --jobs 1
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import device
from bench.gpu.import_closure import ROOT, search_path

TESTS = {
    stage.letter: command.folders
    for stage in device.STAGES
    for command in stage.commands
    if isinstance(command, device.Tests)
}
"""Folders by stage; stage G runs tests of B and D."""
LAUNCHES = ("E", "F", "H", "start")
STAGES = (*TESTS, *LAUNCHES)
PYTEST = (
    "-m", "pytest", "-p", "tools.gpu_rehearsal.plugin", "-m", "gpu", "--assert=plain", "-q",
    "--tb=line", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-W", "ignore",
    "--continue-on-collection-errors",
)  # fmt: skip
UNCOLLECTED = re.compile(r"(\d+) errors?\b")
RAN = re.compile(r"(\d+) (?:passed|failed)")


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What came of a stage."""

    stage: str
    seconds: float
    tests: int
    """Tests that ran; 0 in a stage without tests."""
    collection_errors: int
    kernels: Mapping[str, Mapping[str, Any]]
    """Every kernel that was asked for, as `driver.LaunchedKernel` has it, by hash."""
    failures: Sequence[str]
    """What did not compile, did not fit or could not be launched."""

    @property
    def compiled(self) -> list[Mapping[str, Any]]:
        """Kernels that were not in the cache."""
        return [one for one in self.kernels.values() if not one["cached"]]

    def line(self) -> str:
        """Return the stage's line of the table."""
        seconds = sum(one["seconds"] for one in self.compiled)
        return (
            f"{self.stage:5}  {self.seconds:6.0f} s  {self.tests:5} tests  "
            f"{self.collection_errors:3} not collected  {len(self.kernels):5} kernels  "
            f"{len(self.compiled):5} compiled in {seconds:4.0f} s  {len(self.failures):3} failed"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse, and print a table; 1 where anything would fail on a device."""
    options = _parser().parse_args(arguments)
    if problem := _problem(options.cache):
        print(f"nothing was rehearsed: {problem}", file=sys.stderr)
        return 2
    done = []
    for stage in options.stages:
        done.append(rehearse(stage, options.cache, options.jobs, options.capability))
        print(done[-1].line(), *(f"   {one}" for one in done[-1].failures), sep="\n", flush=True)
    spilling = spills(done)
    print(f"{len({key for one in done for key in one.kernels})} kernels in all;", end=" ")
    print(f"{len(spilling)} spill: {', '.join(spilling) or 'none'}")
    return int(any(one.failures or one.collection_errors for one in done))


def _problem(cache: Path) -> str:
    """Return what is missing here; empty if nothing."""
    absent = [name for name in ("torch", "triton", "pytest") if find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} missing; pip install -r bench/gpu/environment.txt"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / ".written").touch()
    except OSError as error:
        return f"--cache cannot be written: {error}"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_rehearsal", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--stages", type=_stages, default=list(STAGES), metavar="B,C", help="only these stages"
    )
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".gpu-kernels",
        help="folder of compiled kernels, default .gpu-kernels",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, choices=range(1, 65), default=2, metavar="N",
        help="processes of tests, default 2",
    )  # fmt: skip
    parser.add_argument(
        "--capability", type=int, choices=(80, 90, 100), default=90,
        help="compute capability times ten: 80 A100, 90 H100 and H200 (default), 100 B200",
    )  # fmt: skip
    return parser


def _stages(text: str) -> list[str]:
    found = text.split(",")
    if unknown := [letter for letter in found if letter not in STAGES]:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} cannot be rehearsed; allowed: {', '.join(STAGES)}"
        )
    return list(dict.fromkeys(found))


def rehearse(stage: str, cache: Path, jobs: int, capability: int) -> Rehearsed:
    """Run one stage's tests or launches with the driver that launches nothing."""
    started = time.monotonic()
    with TemporaryDirectory() as folder:
        log, failures = Path(folder) / "kernels", Path(folder) / "failures"
        words = (
            [*PYTEST, "-n", str(jobs), *TESTS[stage]]
            if stage in TESTS
            else ["-m", "tools.gpu_rehearsal.launches", stage]
        )
        environment = _environment(cache, log, failures, capability)
        ran = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        kernels = {one["hash"]: one for one in _lines(log)}
        last = next(iter(ran.stdout.strip().splitlines()[-1:]), "")
        failed = failures.read_text(encoding="utf-8").splitlines() if failures.exists() else []
        if stage in LAUNCHES and ran.returncode:
            failed += ran.stdout.splitlines() or ran.stderr.splitlines()[-1:]
        if stage in TESTS and not RAN.search(last):
            failed.append(last or next(iter(ran.stderr.strip().splitlines()[-1:]), "no output"))
    return Rehearsed(
        stage, time.monotonic() - started,
        tests=sum(map(int, RAN.findall(last))) if stage in TESTS else 0,
        collection_errors=sum(map(int, UNCOLLECTED.findall(last))) if stage in TESTS else 0,
        kernels=kernels, failures=failed,
    )  # fmt: skip


def _environment(cache: Path, log: Path, failures: Path, capability: int) -> dict[str, str]:
    """Return the environment of a stage; asserts are off: results mean nothing."""
    return {
        **os.environ,
        "PYTHONPATH": search_path(),
        "PYTHONOPTIMIZE": "1",
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": _relative(cache),
        "GPU_TESTS_DEVICE": "cpu",
        "GPU_REHEARSAL_LOG": str(log),
        "GPU_REHEARSAL_FAILURES": str(failures),
        "GPU_REHEARSAL_CAPABILITY": str(capability),
    }


def _relative(cache: Path) -> str:
    """Return the path from the root if the folder is in the checkout: the cache holds paths, which
    are then right in any other checkout."""
    path = cache.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _lines(log: Path) -> Iterator[Mapping[str, Any]]:
    """Yield kernels; of one that was compiled and then found, the compilation comes last."""
    if log.exists():
        seen = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        yield from sorted(seen, key=lambda one: not one["cached"])


def spills(done: Sequence[Rehearsed]) -> list[str]:
    """Return names of kernels with bytes on the stack, and how many bytes, most first."""
    from bench.gpu.kernel_compiler import usage  # loads triton

    found: dict[str, int] = {}
    for one in {key: each for stage in done for key, each in stage.kernels.items()}.values():
        _, stack = usage(ROOT / one["cubin"])
        if stack:
            found[one["name"]] = max(stack, found.get(one["name"], 0))
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return [f"{name} ({stack} bytes)" for name, stack in ordered]


if __name__ == "__main__":
    sys.exit(main())
