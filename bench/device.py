"""All that needs a GPU, in stages: `python -m bench.device`, or `make gpu`.

Stages run in the order of their letters, each within a limit of its own; one that fails or is cut
off stops no other, and is a line of the table at the end. Reports, logs and the state lie in one
folder, and in one archive that is written anew after each stage. Runs from the source tree on
whatever torch and triton the machine brings.

examples:
  python -m bench.device --stages A,B,E --out device.tgz
  python -m bench.device --seconds 540              # start nothing after so long
  python -m bench.device --resume --seconds 540     # what is not done yet, then what has failed
"""

import argparse
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol
from xml.etree import ElementTree

from bench.gpu.import_closure import ROOT, imported, search_path

RESULTS = ROOT / "gpu-results"
"""Folder of this machine's results, which git ignores; `bench/results/device` has the project's."""
MEASURED = ("kernels/outrider/kernels/gpu", "worker/outrider/worker/gpu")
"""Folders whose results are not kept over a change."""
STATE = "device.json"
GRACE = 20
"""Seconds that a command has to end in, once it should start nothing more, and once told to."""
MIN_SECONDS_LEFT = 20
"""Seconds that are worth starting a stage for."""
TIMED_OUT = 124
ENDING = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that tell this process to end."""
SHOWN = 60
"""Lines of a log that are printed."""
NAMED = 8
"""Failed tests that the table names."""
WIDTH = 200
PACKAGES = {"grpc": "grpcio", "pytest_timeout": "pytest-timeout", "xdist": "pytest-xdist"}
"""Package by module, where the names differ."""
WANTED = ("matplotlib",)
"""Modules without which only plots are left out."""
LEFT = "left for --resume"
"""What a benchmark says that has ended itself before all its cases were measured."""
OF_DEVICE = """
import json, torch, triton
name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
print(json.dumps({"name": name, "torch": torch.__version__, "triton": triton.__version__}))
"""
say = partial(print, flush=True)


class Ending(StrEnum):
    """How a command or a stage has ended; of several commands, the first of these counts."""

    CUT = "cut off"
    FAILED = "failed"
    NOT_RUN = "not run"
    DONE = "done"


class Command(Protocol):
    """One process of a stage."""

    @property
    def name(self) -> str:
        """Name of its report and its log."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Files and folders of the source tree that it loads."""

    def lacking(self) -> list[str]:
        """Return packages that it needs and the machine lacks."""

    def words(self, results: Path, seconds: float, resume: bool) -> list[str]:
        """Return the words that start it, to end by itself within `seconds`."""

    def outcome(self, results: Path, code: int) -> tuple[Ending, str]:
        """Return how it has ended with exit status `code`, and details for people."""

    def shown(self, results: Path) -> list[str]:
        """Return the lines of its log that people want to see."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A module that takes the options of `device_run.parser`."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    """Folders of tests that the module runs."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The module's file, and the folders of tests."""
        return (f"{self.module.replace('.', '/')}.py", *self.tests)

    def lacking(self) -> list[str]:
        """Return packages that the module or its tests import, directly or not."""
        return missing(self.roots, ("pytest",) if self.tests else ())

    def words(self, results: Path, seconds: float, resume: bool) -> list[str]:
        """Return the module with a report in `results`."""
        words = [sys.executable, "-m", self.module, *self.arguments]
        words += ["--report", str(results / f"{self.name}.json")]
        words += ["--seconds", f"{max(1, seconds - GRACE):.0f}"]
        return words + ["--resume"] * resume

    def outcome(self, results: Path, code: int) -> tuple[Ending, str]:
        """Details are the last line that it printed."""
        last = next(iter(log_lines(results, self.name)[-1:]), "")
        if code == TIMED_OUT or (code and LEFT in last):
            return Ending.CUT, last
        return (Ending.FAILED, f"exit status {code}: {last}") if code else (Ending.DONE, last)

    def shown(self, results: Path) -> list[str]:
        """Return the end of the log."""
        return log_lines(results, self.name)[-SHOWN:]


@dataclass(frozen=True, slots=True)
class Tests:
    """Folders of tests with the marker `gpu` (`tests/gpu_device.py`)."""

    name: str
    folders: tuple[str, ...]
    jobs: int = 8

    @property
    def roots(self) -> tuple[str, ...]:
        """Its folders."""
        return self.folders

    def lacking(self) -> list[str]:
        """Return packages that the tests import, directly or not, and pytest's plugins."""
        return missing(self.roots, ("pytest", "pytest_timeout", "xdist"))

    def words(self, results: Path, seconds: float, resume: bool) -> list[str]:
        """Return pytest with a limit per test, and a report in XML."""
        report = results / f"{self.name}.xml"
        report.unlink(missing_ok=True)
        return [
            sys.executable, "-m", "pytest", *self.folders, "-m", "gpu", "-n", str(self.jobs),
            "--timeout=120", "-q", "-rfE", "--tb=short", "-o", "addopts=--import-mode=importlib",
            "-p", "no:cacheprovider", "--continue-on-collection-errors", "-W", "default",
            "--durations=10", f"--junitxml={report}",
        ]  # fmt: skip

    def outcome(self, results: Path, code: int) -> tuple[Ending, str]:
        """Details are numbers, and names of the failed tests."""
        counts = test_counts(results / f"{self.name}.xml")
        if code == TIMED_OUT:
            return Ending.CUT, counts
        if code > 1:
            last = next(iter(log_lines(results, self.name)[-1:]), "")
            return Ending.FAILED, f"exit status {code}: {counts or last}"
        return (Ending.FAILED if code else Ending.DONE), counts

    def shown(self, results: Path) -> list[str]:
        """Return pytest's summary of what failed, and its last line."""
        lines = log_lines(results, self.name)
        failed = [line for line in lines if re.match("(FAILED|ERROR) ", line)]
        return (failed[: SHOWN - 1] + lines[-1:]) if failed else lines[-3:]


@dataclass(frozen=True, slots=True)
class Stage:
    """Some commands that answer one question."""

    letter: str
    title: str
    limit: int
    """Seconds that it may take; GRACE more to end in."""
    commands: tuple[Command, ...]


LLAMA_8B = ("--model", "Llama-3-8B")
STAGES = (
    Stage("A", "facts", 60, (Bench("facts", "bench.gpu.device_facts"),)),
    Stage("B", "kernels", 180, (Tests("kernel_tests", ("tests/unit/kernels/gpu",)),)),
    Stage("C", "runner", 180, (Tests("runner_tests", ("tests/unit/worker/gpu",)),)),
    Stage("D", "shapes", 180, (Tests("shape_tests", ("tests/gpu",)),)),
    Stage("E", "step", 150, (
        Bench("decode_step", "bench.decode_step",
              ("--context", "4096", "--rows", "1", "--rows", "8", "--rows", "64")),
    )),
    Stage("F", "kernels timed", 240, (
        Bench("kernels", "bench.kernels",
              (*LLAMA_8B, "--rows", "1", "--rows", "8", "--rows", "16", "--rows", "64",
               "--context", "1024", "--context", "4096", "--context", "32768")),
    )),
    Stage("G", "sanitize", 240, (
        Bench("sanitize", "bench.gpu.sanitize", tests=("tests/unit/kernels/gpu", "tests/gpu")),
    )),
    Stage("H", "tuning", 400, (Bench("tuning", "bench.gpu.tuning", LLAMA_8B),)),
    Stage("I", "invariance and peers", 400, (
        Bench("invariance", "bench.gpu.invariance", ("--peers",)),
        Bench("kernels_peers", "bench.kernels", (*LLAMA_8B, "--kernel", "attention", "--peers")),
    )),
    Stage("J", "text", 300, (Bench("text", "bench.gpu.device_text"),)),
)  # fmt: skip
"""All stages, the most valuable ones first."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a stage."""

    stage: str
    ending: Ending
    detail: str
    seconds: float
    date: str

    @property
    def status(self) -> str:
        """Ending and details, for people."""
        ending = f"{self.ending} after {self.seconds:.0f} s" if self.ending is Ending.CUT else None
        return ": ".join(filter(None, (ending or self.ending.value, self.detail)))


Runner = Callable[[Sequence[str], Path, float], int]
"""Runs a command within so many seconds, its output to a log; exit status, or `TIMED_OUT`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the stages; 0 where all are done, 2 where there is no device."""
    options = _options(arguments)
    facts = device()
    if facts is None or not _can_write(options.results, options.out):
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born deaf to it
    say(f"device: {facts['name']}, torch {facts['torch']}, triton {facts['triton']}")
    stages = [stage for stage in STAGES if stage.letter in options.stages]
    facts["source"] = source()
    settings = Run(options.results, facts, options.resume, options.seconds, started, options.out)
    done = run(stages, settings)
    say(*table(stages, done), sep="\n")
    return int(any(one.ending is not Ending.DONE for one in done))


def _can_write(results: Path, out: Path | None) -> bool:
    """True if the folder of results and the archive can be written; says so if not."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        paths = [results / f"{STATE}.part"]
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            if out.is_dir():
                raise IsADirectoryError(f"{out} is a folder")
            paths.append(_part_of(out))
        for path in paths:
            path.touch()
            path.unlink()
    except OSError as error:
        print(f"no stage was run: --results or --out cannot be written: {error}", file=sys.stderr)
        return False
    return True


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.device", description=f"{__doc__}\nstages:\n{_contents()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    every = [stage.letter for stage in STAGES]
    parser.add_argument(
        "--stages", type=letters, default=every, metavar="A,B", help="only these stages"
    )
    parser.add_argument(
        "--seconds", type=seconds_of, metavar="N",
        help=f"end after so many and {GRACE} more; a stage starts with {MIN_SECONDS_LEFT} left",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what is done")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help=f"folder of all results, default {RESULTS.name}",
    )
    parser.add_argument("--out", type=Path, help="archive of all results, written after each stage")
    return parser.parse_args(arguments)


def _contents() -> str:
    return "\n".join(f"  {one.letter}  {one.title}, at most {one.limit} s" for one in STAGES)


def seconds_of(text: str) -> float:
    """Parse a number of seconds; raises `ArgumentTypeError` for one in which no stage starts."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not MIN_SECONDS_LEFT <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; at least {MIN_SECONDS_LEFT}")
    return found


def letters(text: str) -> list[str]:
    """Parse letters of stages between commas; raises `ArgumentTypeError` at an unknown one."""
    allowed = [stage.letter for stage in STAGES]
    found = text.split(",")
    for letter in found:
        if letter not in allowed:
            raise argparse.ArgumentTypeError(
                f"there is no stage {letter!r}; stages are {', '.join(allowed)}"
            )
    return found


def device() -> dict[str, str] | None:
    """Name of the device and versions, from a process of its own; says so if there is none."""
    asked = subprocess.run([sys.executable, "-c", OF_DEVICE], capture_output=True, text=True)
    if asked.returncode:
        why = next(iter(asked.stderr.strip().splitlines()[-1:]), f"exit status {asked.returncode}")
        print(f"no stage was run, since torch and triton cannot be loaded: {why}", file=sys.stderr)
        return None
    found: dict[str, str] = json.loads(asked.stdout)
    if not found["name"]:
        print(
            f"no stage was run, since torch {found['torch']} finds no CUDA device here",
            file=sys.stderr,
        )
        return None
    return found


def source() -> str:
    """Return a digest of the code that the stages test and measure."""
    files = (file for folder in MEASURED for file in sorted((ROOT / folder).rglob("*.py")))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def missing(roots: Iterable[str], modules: Iterable[str] = ()) -> list[str]:
    """Return packages that `roots` import or `modules` name and the machine lacks.

    A root that is not there is missing too.
    """
    there = {root: (ROOT / root).exists() for root in roots}
    loaded = imported(*(Path(root) for root, found in there.items() if found))
    names = [name for name in dict.fromkeys((*modules, *loaded)) if name not in WANTED]
    packages = [PACKAGES.get(name, name) for name in names if find_spec(name) is None]
    return [*(root for root, found in there.items() if not found), *packages]


class Run(NamedTuple):
    """Settings of one run of some stages."""

    results: Path
    facts: Mapping[str, str]
    """Name of the device, and versions."""
    resume: bool
    seconds: float | None
    runner: Runner
    out: Path | None = None
    """Archive of the results."""
    clock: Callable[[], float] = time.monotonic


def run(stages: Sequence[Stage], settings: Run) -> list[Done]:
    """Run the stages that are due; write state and archive after each."""
    results, clock = settings.results, settings.clock
    results.mkdir(parents=True, exist_ok=True)
    done = earlier(results / STATE, settings.facts)
    if not settings.resume:
        done = {key: one for key, one in done.items() if key not in {s.letter for s in stages}}
    _save(results / STATE, settings.facts, done)
    begin = clock()
    for stage in due(stages, done):
        left = float("inf") if settings.seconds is None else settings.seconds - (clock() - begin)
        if left < MIN_SECONDS_LEFT:
            none = Done(stage.letter, Ending.NOT_RUN, "no time left", 0.0, _now())
            done.setdefault(stage.letter, none)  # an earlier result says more
            continue
        begun = settings._replace(resume=settings.resume and stage.letter in done)
        done[stage.letter] = one_stage(stage, min(stage.limit, left), begun)
        _save(results / STATE, settings.facts, done)
        if settings.out:
            try:
                archive(results, settings.out)
            except OSError as error:
                say(f"{settings.out} could not be written: {error}")
    return [done[stage.letter] for stage in stages]


def due(stages: Sequence[Stage], done: Mapping[str, Done]) -> list[Stage]:
    """Return what is not done yet, then what has failed."""
    endings = {stage.letter: done[stage.letter].ending for stage in stages if stage.letter in done}
    fresh = [s for s in stages if endings.get(s.letter) not in (Ending.DONE, Ending.FAILED)]
    return fresh + [s for s in stages if endings.get(s.letter) is Ending.FAILED]


def one_stage(stage: Stage, seconds: float, settings: Run) -> Done:
    """Run the commands of a stage, each with an equal part of the time that is left."""
    begin, date = settings.clock(), _now()
    say(f"\n== {stage.letter} {stage.title}, at most {seconds:.0f} s")
    outcomes = []
    for index, command in enumerate(stage.commands):
        left = seconds - (settings.clock() - begin)
        outcomes.append(_outcome(command, left / (len(stage.commands) - index), settings))
    ending = min((ending for ending, _ in outcomes), key=list(Ending).index)
    detail = "; ".join(detail for _, detail in outcomes if detail)
    done = Done(stage.letter, ending, detail, round(settings.clock() - begin, 1), date)
    say(f"-- {stage.letter} {stage.title}: {done.status}")
    return done


def _outcome(command: Command, seconds: float, settings: Run) -> tuple[Ending, str]:
    lacking = command.lacking()
    if lacking:
        return Ending.NOT_RUN, f"{', '.join(lacking)} missing"
    words = command.words(settings.results, seconds, settings.resume)
    say(f"$ {' '.join(words)}")
    code = settings.runner(words, settings.results / f"{command.name}.log", seconds)
    for line in command.shown(settings.results):
        say(line[:WIDTH])
    return command.outcome(settings.results, code)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def earlier(path: Path, facts: Mapping[str, str]) -> dict[str, Done]:
    """Return what was done before by the same code, on the same device, by letter."""
    if not path.exists():
        return {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["device"] != facts:
            return {}
        ended = [Done(**one | {"ending": Ending(one["ending"])}) for one in state["stages"]]
    except (ValueError, KeyError, TypeError) as error:
        say(f"{path} cannot be read, so nothing counts as done: {error}")
        return {}
    return {one.stage: one for one in ended}


def _save(path: Path, facts: Mapping[str, str], done: Mapping[str, Done]) -> None:
    state = {"date": _now(), "device": facts, "stages": [asdict(one) for one in done.values()]}
    part = _part_of(path)
    part.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def _part_of(path: Path) -> Path:
    """Return the file that becomes `path` when it is whole."""
    return path.with_name(f"{path.name}.part")


def archive(results: Path, out: Path) -> None:
    """Write all of `results` to `out`, which is whole at any time."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(out)
    own = {part.resolve(), out.resolve()}
    with tarfile.open(part, "w:gz") as file:
        for path in sorted(results.rglob("*")):
            if path.is_file() and path.resolve() not in own:
                file.add(path, f"{results.name}/{path.relative_to(results)}")
    part.replace(out)


def table(stages: Sequence[Stage], done: Sequence[Done]) -> list[str]:
    """Return letter, title, seconds and status of each stage, a line each."""
    rows = zip(stages, done, strict=True)
    lines = (f"{s.letter}  {s.title:20} {one.seconds:5.0f} s  {one.status}" for s, one in rows)
    return ["", "stage                  seconds  status", *lines]


def log_lines(results: Path, name: str) -> list[str]:
    """Return the lines of a command's log that are not empty."""
    path = results / f"{name}.log"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_counts(report: Path) -> str:
    """Count a JUnit report's tests by result, and name the failed ones; empty without a report."""
    if not report.exists():
        return ""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except ElementTree.ParseError:  # cut off while it was written
        return ""
    kinds = {id(case): {child.tag for child in case} for case in cases}
    failed = [case for case in cases if kinds[id(case)] & {"failure", "error"}]
    skipped = sum("skipped" in found for found in kinds.values())
    counts = {"passed": len(cases) - len(failed) - skipped, "failed": len(failed)}
    counts["skipped"] = skipped
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "no tests"
    names = [f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}" for case in failed]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return f"{said}: {', '.join(names[:NAMED] + more)}" if failed else said


END_WITH_PARENT = """
import ctypes, os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, ())
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A command's first words, which have Linux kill it once the process that started it is gone, even
if that is killed. A process of many threads must not run them between `fork` and `exec`."""


def started(words: Sequence[str], log: Path, seconds: float) -> int:
    """Run from the source tree, kernels compiled, in a process group that does not outlive this."""
    environment = {**os.environ, "PYTHONPATH": search_path(), "TRITON_INTERPRET": "0"}
    # Told to end while the command starts, this process would leave it behind.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    process = None
    try:
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [sys.executable, "-ISc", END_WITH_PARENT, *words], cwd=ROOT, env=environment,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return ended(process, seconds)
    finally:
        if process is not None:
            _signal(process, signal.SIGKILL)
            process.wait()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait; asks the group for an end once the time is up, so that what was done is said."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    return TIMED_OUT


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group, which may outlive its first process."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main())
