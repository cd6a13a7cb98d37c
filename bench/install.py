"""What an install takes: megabytes and seconds of each, and `make demo` from nothing, then again.

Then how long the command takes to answer, and the demo's service to be ready.

    python -m bench.install                # writes results/install.json

Installs into a clone of this checkout's last commit in a folder that is removed again. Each set is
linked from uv's cache; the demo is then made with an empty cache and an empty home, so that it
downloads, converts its model and compiles its kernels.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.record.report import RESULTS, write_report

ROOT = Path(__file__).parents[1]
SETS = {
    "run": ("--group", "run"),
    "worker": ("--extra", "worker"),
    "worker-torch": ("--extra", "worker-torch"),
    "operator": ("--extra", "operator"),
    "cli": ("--extra", "cli"),
}
"""What is installed, by the options of `uv sync` that name it."""
MEGABYTE = 1_000_000
PRINTING = ("--version", "--help")
SERVING = ("run", "-f", "examples/smollm2.yaml", "--port", "0", "--grpc-port", "0")
RUNS = 3


@dataclass(frozen=True, slots=True)
class CommandCost:
    """What a command took."""

    seconds: float
    processor_seconds: float
    """Processor seconds of the command and all that it started: a machine with other work to do
    takes longer, not more."""


@dataclass(frozen=True, slots=True)
class Install:
    """One set of packages, installed."""

    megabytes: float
    """Megabytes of the install's site-packages, without compiled bytecode."""
    packages: int
    took: CommandCost


@dataclass(frozen=True, slots=True)
class Demo:
    """`make demo`, from nothing and again."""

    install: Install
    """Downloads included."""
    first: CommandCost
    """Time of the first `make demo` after the install."""
    again: CommandCost
    answers: dict[str, float]
    """Seconds of commands that only print, the least of `RUNS`."""
    ready: float
    """Seconds from the command to the service being ready, the least of `RUNS`."""


def main() -> int:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=[*SETS], choices=SETS, help="which to install")
    parser.add_argument("--no-demo", action="store_true", help="leave `make demo` out")
    parser.add_argument("--out", type=Path, default=RESULTS / "install.json")
    options = parser.parse_args()
    load_average = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone = folder / "outrider"
        run(("git", "clone", "--quiet", str(ROOT), str(clone)), folder, {})
        results: dict[str, object] = {
            name: installed(clone, folder / name, SETS[name]) for name in options.sets
        }
        if not options.no_demo:
            results["demo"] = demo(clone, folder)
    for name, found in results.items():
        print(f"{name}: {found}")
    write_report(options.out, "python -m bench.install", results, {}, load_average)
    return 0


def installed(clone: Path, venv: Path, choice: tuple[str, ...]) -> Install:
    """Install a set into an environment of its own, out of uv's cache if it is there."""
    uv = subprocess.run([clone / "tools" / "bootstrap"], capture_output=True, text=True, check=True)
    command = (uv.stdout.strip(), "sync", "--locked", "--quiet", "--no-default-groups", *choice)
    return measured(venv, run(command, clone, {"UV_PROJECT_ENVIRONMENT": str(venv)}))


def demo(clone: Path, folder: Path) -> Demo:
    """Make the demo with an empty cache and an empty home, then make it again."""
    home = folder / "home"
    home.mkdir()
    empty = {"HOME": str(home), "UV_CACHE_DIR": str(folder / "uv-cache"), "NUMBA_CACHE_DIR": ""}
    install = measured(clone / ".venv", run(("make", "run-sync"), clone, empty))
    first, again = (run(("make", "demo"), clone, empty) for _ in range(2))
    outrider = str(clone / ".venv" / "bin" / "outrider")
    answers = {
        option: min(run((outrider, option), clone, empty).seconds for _ in range(RUNS))
        for option in PRINTING
    }
    ready = min(seconds_to_ready((outrider, *SERVING), clone, empty) for _ in range(RUNS))
    return Demo(install, first, again, answers, ready)


def seconds_to_ready(
    command: tuple[str, ...], where: Path, environment: Mapping[str, str]
) -> float:
    """Return the seconds until a command says that it serves, and stop it.

    Raises `RuntimeError` where it ends without.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=where, env=own_environment() | environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        if not any(line.startswith("Serving ") for line in process.stdout):
            raise RuntimeError(f"{' '.join(command)} ended before it served")
        return round(time.monotonic() - began, 1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def run(command: tuple[str, ...], where: Path, environment: Mapping[str, str]) -> CommandCost:
    """Run a command to its good end. What it prints goes to stderr."""
    began, used = time.monotonic(), processor_seconds()
    own = own_environment() | environment
    subprocess.run(command, cwd=where, env=own, stdout=sys.stderr, check=True)
    return CommandCost(round(time.monotonic() - began, 2), round(processor_seconds() - used, 2))


def own_environment() -> dict[str, str]:
    """Return this process's environment without what points into this checkout."""
    foreign = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if key not in foreign}


def processor_seconds() -> float:
    """Return the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(venv: Path, took: CommandCost) -> Install:
    """Return the size of an environment's packages; each file counts, linked elsewhere or not."""
    (packages,) = venv.glob("lib/python*/site-packages")
    files = (file for file in packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
    size = sum(file.stat().st_size for file in files)
    count = len(list(packages.glob("*.dist-info")))
    return Install(round(size / MEGABYTE, 1), count, took)


if __name__ == "__main__":
    sys.exit(main())
