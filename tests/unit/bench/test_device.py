import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import device
from bench.device import (
    GRACE,
    MIN_SECONDS_LEFT,
    STAGES,
    TIMED_OUT,
    Bench,
    Ending,
    Run,
    Stage,
)

FACTS = {"name": "H100", "torch": "2.11", "triton": "3.6"}
CHECKED = """
import pytest
pytestmark = pytest.mark.gpu
def test_good(): pass
def test_skipped(): pytest.skip()
@pytest.mark.parametrize("n", [1, 2])
def test_some(n): assert n == 1
"""


@dataclass(frozen=True, slots=True)
class Script(Bench):
    """A benchmark that is a shell script, and is told its results' folder."""

    def lacking(self) -> list[str]:
        """Nothing."""
        return []

    def words(self, results: Path, seconds: float, resume: bool) -> list[str]:
        """Start a shell."""
        return ["sh", "-c", self.module, "sh", str(results)]


def scripts(*texts: str, limit: int = 100) -> list[Stage]:
    """Stages A, B and so on, each of one script."""
    return [
        Stage(letter, f"stage {letter}", limit, (Script(letter.lower(), text),))
        for letter, text in zip("ABCDEF", texts, strict=False)
    ]


@dataclass
class Machine:
    """Runs nothing, and takes 60 seconds for it; `codes` by command."""

    codes: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    ran: list[str] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def run(self, words: Sequence[str], log: Path, seconds: float) -> int:
        self.ran.append(log.stem)
        self.limits.append(seconds)
        self.now += 60
        return self.codes.get(log.stem, 0)

    def stages(
        self, results: Path, stages: Sequence[Stage], *, resume: bool = True,
        seconds: float | None = None,
    ) -> dict[str, str]:  # fmt: skip
        settings = Run(results, FACTS, resume, seconds, self.run, clock=lambda: self.now)
        return {one.stage: one.status for one in device.run(stages, settings)}


@dataclass
class Pipe:
    """A named pipe, whose end is seen once every process that has opened it is gone."""

    path: Path

    def __post_init__(self) -> None:
        os.mkfifo(self.path)
        self.reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self.reader, True)
        self.own = os.open(self.path, os.O_WRONLY)

    def some(self) -> bytes:
        """Wait for something."""
        return os.read(self.reader, 100)

    def rest(self) -> bytes:
        """Wait for its end."""
        os.close(self.own)
        return b"".join(iter(self.some, b""))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """A pipe beside the results."""
    made = Pipe(tmp_path / "pipe")
    yield made
    os.close(made.reader)


def archived(out: Path) -> dict[str, str]:
    """Return the files of an archive."""
    with tarfile.open(out) as file:
        return {one.name: file.extractfile(one).read().decode() for one in file}  # type: ignore[union-attr]


def test_stages_succeed_fail_and_are_cut_off_with_their_children(
    tmp_path: Path, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging = f"exec 3> {pipe.path}; sleep 600 & echo child >&3; wait"
    stages = scripts("echo '3 cases measured'", "echo broken; exit 3", hanging, "echo last")
    stages[2] = Stage("C", "stage C", 3, stages[2].commands)
    out = tmp_path / "there" / "all.tgz"
    settings = Run(tmp_path / "results", FACTS, False, None, device.started, out)
    done = device.run(stages, settings)
    assert [(one.ending, one.detail) for one in done] == [
        (Ending.DONE, "3 cases measured"),
        (Ending.FAILED, "exit status 3: broken"),
        (Ending.CUT, ""),
        (Ending.DONE, "last"),
    ]
    assert pipe.rest() == b"child\n"  # there was one, and it is gone
    table = device.table(stages, done)[-4:]
    assert [line[0] for line in table] == ["A", "B", "C", "D"]
    assert table[1].endswith("failed: exit status 3: broken")
    assert "cut off after" in table[2]
    printed = capsys.readouterr().out
    assert printed.index("\n3 cases measured\n") < printed.index("\nbroken\n")
    files = archived(out)
    assert files["results/b.log"] == "broken\n"
    state = json.loads(files["results/device.json"])
    assert [one["ending"] for one in state["stages"]] == ["done", "failed", "cut off", "done"]
    assert state["device"] == FACTS
    assert not list(tmp_path.rglob("*.part"))


def interrupted(folder: str) -> None:
    """Run three stages, of which the second hangs where `again` is not there yet."""
    results, again = Path(folder) / "results", Path(folder) / "again"
    hanging = f"exec 3> {folder}/pipe; echo begun >&3; exec sleep 600"
    ran = f"echo {{}} >> {folder}/ran; "
    stages = scripts(
        ran.format("A") + "echo one",
        ran.format("B") + f"[ -e {again} ] || {{ {hanging}; }}; echo two",
        ran.format("C") + "echo three",
    )
    out = Path(folder) / "all.tgz"
    device.run(stages, Run(results, FACTS, again.exists(), None, device.started, out))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a killed process leaves its own")
def test_a_run_that_is_killed_goes_on_with_the_stage_that_it_was_in(
    tmp_path: Path, pipe: Pipe
) -> None:
    code = f"from tests.unit.bench.test_device import interrupted; interrupted({str(tmp_path)!r})"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=device.ROOT) as runner:
        assert pipe.some() == b"begun\n"
        runner.kill()
    assert pipe.rest() == b""  # the command of the stage went with it
    files = archived(tmp_path / "all.tgz")
    assert files["results/a.log"] == "one\n"
    assert [one["stage"] for one in json.loads(files["results/device.json"])["stages"]] == ["A"]
    assert list(device.earlier(tmp_path / "results" / device.STATE, FACTS)) == ["A"]
    (tmp_path / "again").touch()
    assert subprocess.run(words, cwd=device.ROOT).returncode == 0
    assert (tmp_path / "ran").read_text().split() == ["A", "B", "B", "C"]
    assert {"results/a.log", "results/b.log", "results/c.log"} <= archived(
        tmp_path / "all.tgz"
    ).keys()


def test_what_is_not_done_comes_before_what_has_failed(tmp_path: Path) -> None:
    stages = scripts("", "", "", "", "")
    first = Machine({"b": 1, "c": TIMED_OUT})
    assert first.stages(tmp_path, stages[:4]) == {
        "A": "done", "B": "failed: exit status 1: ", "C": "cut off after 60 s", "D": "done"
    }  # fmt: skip
    second = Machine()
    assert set(second.stages(tmp_path, stages).values()) == {"done"}
    assert second.ran == ["c", "e", "b"]
    assert second.stages(tmp_path, stages, resume=False)
    assert second.ran[3:] == ["a", "b", "c", "d", "e"]


def test_stages_that_are_not_asked_for_keep_their_results(tmp_path: Path) -> None:
    stages = scripts("", "")
    Machine().stages(tmp_path, stages)
    Machine({"b": 1}).stages(tmp_path, stages[1:], resume=False)
    kept = device.earlier(tmp_path / device.STATE, FACTS)
    assert {letter: one.ending for letter, one in kept.items()} == {
        "A": Ending.DONE, "B": Ending.FAILED
    }  # fmt: skip
    assert device.earlier(tmp_path / device.STATE, FACTS | {"name": "H200"}) == {}


def test_a_stage_gets_what_is_left_of_the_time_and_none_starts_without(tmp_path: Path) -> None:
    machine, stages = Machine({"a": 1}), scripts("", "", "")
    done = machine.stages(tmp_path, stages, seconds=60 + MIN_SECONDS_LEFT)
    assert list(done.values())[1:] == ["done", "not run: no time left"]
    assert machine.limits == [60 + MIN_SECONDS_LEFT, MIN_SECONDS_LEFT]
    again = Machine().stages(tmp_path, stages, seconds=MIN_SECONDS_LEFT)
    assert again["C"] == "done"
    assert again["A"] == "failed: exit status 1: "  # still, since there was no time for it


def test_commands_of_a_stage_share_its_time_and_the_worst_ending_counts(tmp_path: Path) -> None:
    commands = (Script("a", ""), Script("b", ""))
    machine = Machine({"a": TIMED_OUT})
    done = machine.stages(tmp_path, [Stage("A", "two", 200, commands)])
    assert machine.limits == [100, 140]
    assert done == {"A": "cut off after 120 s"}


def test_a_benchmark_that_leaves_cases_is_not_done_yet(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from bench.gpu.device_run import Outcome

    said = Outcome([], ["a case"]).said()
    (tmp_path / "a.log").write_text(f"first\n{said}\n")
    bench = Bench("a", "bench.a")
    assert bench.outcome(tmp_path, 1) == (Ending.CUT, said)
    assert bench.shown(tmp_path) == ["first", said]
    words = bench.words(tmp_path, 100, True)
    assert words[1:] == [
        "-m", "bench.a", "--report", str(tmp_path / "a.json"), "--seconds", str(100 - GRACE),
        "--resume",
    ]  # fmt: skip


def test_a_stage_whose_packages_or_files_are_missing_says_so(tmp_path: Path) -> None:
    assert device.missing(["bench/no_such_file.py"], ["no_such_package", "json"]) == [
        "bench/no_such_file.py", "no_such_package"
    ]  # fmt: skip
    stage = Stage("A", "one", 100, (Bench("a", "bench.no_such_file"),))
    machine = Machine()
    assert machine.stages(tmp_path, [stage]) == {"A": "not run: bench/no_such_file.py missing"}
    assert machine.ran == []


def test_failed_tests_are_counted_and_named(tmp_path: Path) -> None:
    folder, results = tmp_path / "checks", tmp_path / "results"
    folder.mkdir()
    results.mkdir()
    (folder / "test_it.py").write_text(CHECKED)
    tests = device.Tests("tests", (str(folder),), jobs=1)
    code = device.started(tests.words(results, 100, False), results / "tests.log", 300)
    ending, detail = tests.outcome(results, code)
    assert (ending, detail) == (
        Ending.FAILED, "2 passed, 1 failed, 1 skipped: test_it::test_some[2]"
    )  # fmt: skip
    shown = tests.shown(results)
    assert len(shown) == 2
    assert shown[0].startswith("FAILED")
    assert tests.outcome(results, TIMED_OUT) == (Ending.CUT, detail)
    tests.words(results, 100, True)  # nothing is left of a report once they run again
    assert tests.outcome(results, TIMED_OUT) == (Ending.CUT, "")


def test_a_command_that_is_cut_off_can_say_what_it_has_done(tmp_path: Path) -> None:
    script = "trap 'echo ended; exit' INT; echo $TRITON_INTERPRET; sleep 600 & wait"
    log = tmp_path / "a.log"
    assert device.started(["sh", "-c", script], log, 3) == TIMED_OUT
    assert log.read_text() == "0\nended\n"


def test_a_command_finds_the_source_tree(tmp_path: Path) -> None:
    code = "import outrider.contract.settings, bench.record.report"
    assert device.started([sys.executable, "-c", code], tmp_path / "a.log", 300) == 0


def test_the_tests_that_need_a_gpu_are_found_where_kernels_are_compiled(tmp_path: Path) -> None:
    commands = [command for stage in STAGES for command in stage.commands]
    folders = [one.folders for one in commands if isinstance(one, device.Tests)]
    tests = device.Tests("tests", tuple(folder for some in folders for folder in some))
    log = tmp_path / "tests.log"
    words = [*tests.words(tmp_path, 100, False), "--collect-only"]
    assert device.started(words, log, 300) == 0
    found = log.read_text()
    for name in ("test_tree_attention", "test_gpu_engine", "test_gpu_sampling", "bfloat16"):
        assert name in found
    assert "interpret" not in found


def test_stages_have_their_files_and_compile_peers_in_one_alone() -> None:
    commands = [(stage.letter, command) for stage in STAGES for command in stage.commands]
    assert all((device.ROOT / root).exists() for _, command in commands for root in command.roots)
    assert len({command.name for _, command in commands}) == len(commands)
    benches = [(letter, one) for letter, one in commands if isinstance(one, Bench)]
    assert {letter for letter, one in benches if "--peers" in one.arguments} == {"I"}


def test_an_unknown_stage_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert device.letters("B,A") == ["B", "A"]
    with pytest.raises(SystemExit):
        device.main(["--stages", "A,X"])
    assert "'X'; stages are A, B, C" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-5", "19", "nan", "inf", "ten"])
def test_a_time_in_which_nothing_starts_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        device.main(["--seconds", text])
    assert f"'{text}' is not allowed; at least {MIN_SECONDS_LEFT}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--results", "--out"])
def test_a_path_that_cannot_be_written_is_named_before_the_first_stage(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(device, "device", lambda: FACTS)
    (tmp_path / "file").touch()
    words = {"--results": str(tmp_path / "results")} | {option: str(tmp_path / "file" / "below")}
    assert device.main([word for pair in words.items() for word in pair]) == 2
    said = capsys.readouterr()
    assert "no stage was run: --results or --out cannot be written" in said.err
    assert said.out == ""


def test_a_damaged_state_counts_as_nothing_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("{", "[]", '{"device": {}}'):
        (tmp_path / device.STATE).write_text(text, encoding="utf-8")
        assert device.earlier(tmp_path / device.STATE, {}) == {}
        assert "cannot be read" in capsys.readouterr().out


def test_a_run_that_is_told_to_end_takes_its_command_along(tmp_path: Path, pipe: Pipe) -> None:
    code = (
        "import signal, sys; from pathlib import Path; from bench import device;"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3));"
        f"device.started(['sh', '-c', 'exec 3> {pipe.path}; echo begun >&3; sleep 600 & wait'],"
        f" Path({str(tmp_path / 'log')!r}), 600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=device.ROOT) as runner:
        assert pipe.some() == b"begun\n"
        runner.send_signal(signal.SIGTERM)
    assert runner.returncode == 3
    assert pipe.rest() == b""
