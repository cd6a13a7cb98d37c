"""All that needs a GPU, one after the other: `python -m bench.device`, or `make gpu`.

The tests of the kernels and the runner, compiled, then each benchmark of a device, each within a
time of its own; what fails stops no other, and is said at the end. Results, with date and device,
and a log of each step go to one folder. Runs on whatever torch and triton the machine brings, from
the source tree; the first lines name what else is missing.

examples:
  python -m bench.device
  python -m bench.device --seconds 570              # start nothing after so long
  python -m bench.device --resume                   # what has not been done, and what has failed
  python -m bench.device --only kernels --only decode_step
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
FOLDERS = (".", "kernels", "cli", "protos", "worker", "operator")
"""Of the source tree, that Python has to find."""
GPU_TESTS = ("tests/unit/kernels/gpu", "tests/unit/worker/gpu")
"""Folders whose tests have the marker `gpu` where kernels are compiled (`tests/gpu_device.py`)."""
STATE = "device.json"
GRACE = 20
"""Seconds that a step has to end in, once it should start nothing more, and once it is told to."""
MIN_SECONDS_LEFT = 20
"""Seconds that are worth starting a step for."""
TIMED_OUT = 124
BENCH = ("torch", "triton", "numpy", "numba")
PACKAGES = {"grpc": "grpcio", "pytest_timeout": "pytest-timeout"}
"""By module, where the package is called otherwise."""
OF_DEVICE = (
    "import json, torch, triton; print(json.dumps({'name': torch.cuda.get_device_name(),"
    " 'torch': torch.__version__, 'triton': triton.__version__}))"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    name: str
    module: str
    arguments: tuple[str, ...]
    seconds: int
    """Most that it may take."""
    needs: tuple[str, ...]
    """Modules without which nothing of it runs."""
    resumes: bool = True
    """Whether it takes `--seconds`, `--report` and `--resume`."""
    wants: tuple[str, ...] = ("matplotlib",)
    """Modules without which a part of it is left out."""


def _bench(name: str, seconds: int, *needs: str) -> Step:
    return Step(name, f"bench.{name}", (), seconds, (*BENCH, *needs))


STEPS = (
    Step(
        "tests",
        "pytest",
        (*GPU_TESTS, "-m", "gpu", "-q", "-o", "addopts=--import-mode=importlib",
         "--continue-on-collection-errors", "-W", "default", "--durations=10"),
        300,
        (*BENCH, "pytest"),
        resumes=False,
        wants=("pytest_timeout", "hypothesis", "safetensors", "transformers", "grpc"),
    ),
    _bench("kernels", 390),
    _bench("tuning", 210),
    _bench("invariance", 210),
    _bench("decode_step", 240, "grpc"),
)  # fmt: skip
"""In order; together at most 25 minutes, with the grace of each."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a step."""

    step: str
    status: str
    """`done`; else what is wrong: exit status, time, or what is missing."""
    seconds: float
    date: str

    @property
    def good(self) -> bool:
        """True if nothing is left to do."""
        return self.status == "done"


Runner = Callable[[Sequence[str], Path, float], int]
"""Runs a command, its output to a log too; exit status, or `TIMED_OUT`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the steps; 0 where all are done."""
    options = _options(arguments)
    say = print
    lacking = missing(STEPS)
    say(f"missing: {', '.join(lacking) or 'nothing'}")
    if lacking:
        say(f"to install: {sys.executable} -m pip install {' '.join(lacking)}")
    facts = device()
    say(f"device: {facts['name']}, torch {facts['torch']}, triton {facts['triton']}")
    if facts["name"] == "none":
        return 2
    steps = [step for step in STEPS if step.name in (options.only or [s.name for s in STEPS])]
    before = earlier(options.results / STATE, facts) if options.resume else {}
    done = run(steps, before, Run(options.results, facts, options.resume, options.seconds, started))
    for one in done:
        say(f"{one.step:12} {one.seconds:6.0f} s  {one.status}")
    return int(not all(one.good for one in done))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.device", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all results")
    parser.add_argument("--seconds", type=float, help="start nothing after so many")
    parser.add_argument("--resume", action="store_true", help="leave out what is done")
    names = [step.name for step in STEPS]
    parser.add_argument("--only", choices=names, action="append", help="only these steps")
    return parser.parse_args(arguments)


def missing(steps: Sequence[Step]) -> list[str]:
    """Return packages that some step needs or wants and the machine lacks."""
    wanted = dict.fromkeys(name for step in steps for name in (*step.needs, *step.wants))
    return [PACKAGES.get(name, name) for name in wanted if find_spec(name) is None]


def device() -> dict[str, str]:
    """Name of the device and versions, from a process of its own; `none` where there is none."""
    asked = subprocess.run([sys.executable, "-c", OF_DEVICE], capture_output=True, text=True)
    if asked.returncode:
        print(asked.stderr.strip().splitlines()[-1], file=sys.stderr)
        return dict.fromkeys(("name", "torch", "triton"), "none")
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def earlier(path: Path, facts: Mapping[str, str]) -> dict[str, Done]:
    """Return what was done before on the same device with the same versions."""
    if not path.exists():
        return {}
    state = json.loads(path.read_text(encoding="utf-8"))
    return {one["step"]: Done(**one) for one in state["steps"]} if state["device"] == facts else {}


class Run(NamedTuple):
    """Settings of one run of the steps."""

    results: Path
    facts: Mapping[str, str]
    """Of the device."""
    resume: bool
    seconds: float | None
    runner: Runner
    clock: Callable[[], float] = time.monotonic


def run(steps: Sequence[Step], before: Mapping[str, Done], settings: Run) -> list[Done]:
    """Run every step that is not done yet; write the state after each."""
    results, facts, resume, seconds, runner, clock = settings
    results.mkdir(parents=True, exist_ok=True)
    done = dict(before)
    begin = clock()
    for step in steps:
        if step.name in done and done[step.name].good:
            continue
        left = float("inf") if seconds is None else seconds - (clock() - begin)
        done[step.name] = one(step, results, resume, min(step.seconds, left), runner, clock)
        state = {"device": facts, "steps": [asdict(each) for each in done.values()]}
        (results / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    return [done[step.name] for step in steps]


def one(
    step: Step, results: Path, resume: bool, seconds: float, runner: Runner,
    clock: Callable[[], float],
) -> Done:  # fmt: skip
    """One step, unless it cannot run or there is no time."""
    begin, date = clock(), datetime.now(UTC).isoformat(timespec="seconds")
    lacking = [PACKAGES.get(name, name) for name in step.needs if find_spec(name) is None]
    if lacking:
        return Done(step.name, f"not run: {', '.join(lacking)} missing", 0.0, date)
    if seconds < MIN_SECONDS_LEFT:
        return Done(step.name, "not run: no time left", 0.0, date)
    code = runner(command(step, results, resume, seconds), results / f"{step.name}.log", seconds)
    status = {0: "done", TIMED_OUT: f"ended after {seconds:.0f} s"}.get(code, f"exit status {code}")
    return Done(step.name, status, round(clock() - begin, 1), date)


def command(step: Step, results: Path, resume: bool, seconds: float) -> list[str]:
    """Return the command that starts a step."""
    words = [sys.executable, "-m", step.module, *step.arguments]
    if step.resumes:
        words += ["--report", str(results / f"{step.name}.json")]
        words += ["--seconds", f"{max(1, seconds - GRACE):.0f}"]
        words += ["--resume"] if resume else []
    return words


def started(words: Sequence[str], log: Path, seconds: float) -> int:
    """Run from the source tree, kernels compiled; output goes to the log and to the screen."""
    here = os.pathsep.join(str(ROOT / folder) for folder in FOLDERS)
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_INTERPRET": "0"}
    print(f"$ {' '.join(words)}", flush=True)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
        code = ended(process, seconds)
    print("".join(log.read_text(encoding="utf-8", errors="replace").splitlines(True)[-15:]))
    return code


def ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait; asks for an end once the time is up, so that what was done is said, then forces it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return TIMED_OUT


if __name__ == "__main__":
    sys.exit(main())
