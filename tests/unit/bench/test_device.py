import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from bench import device
from bench.device import GRACE, MIN_SECONDS_LEFT, STEPS, TIMED_OUT, Step

FACTS = {"name": "H100", "torch": "2.11", "triton": "3.6"}
NAMES = [step.name for step in STEPS]
HERE = tuple(Step(name, f"bench.{name}", (), 100, ("json",)) for name in ("a", "b", "c"))


class Machine:
    """Runs nothing, and takes 60 seconds for it; `codes` by step."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.now = 0.0
        self.ran: list[str] = []
        self.words: list[Sequence[str]] = []

    def run(self, words: Sequence[str], log: Path, seconds: float) -> int:
        self.ran.append(log.stem)
        self.words.append(words)
        self.now += 60
        return self.codes.get(log.stem, 0)

    def steps(
        self, results: Path, *, resume: bool = False, seconds: float | None = None
    ) -> dict[str, str]:
        before = device.earlier(results / device.STATE, FACTS) if resume else {}
        settings = device.Run(results, FACTS, resume, seconds, self.run, lambda: self.now)
        done = device.run(HERE, before, settings)
        return {one.step: one.status for one in done}


def test_what_fails_stops_no_other_and_only_that_is_run_again(tmp_path: Path) -> None:
    first = Machine(a=1, b=TIMED_OUT)
    assert first.steps(tmp_path) == {"a": "exit status 1", "b": "ended after 100 s", "c": "done"}
    second = Machine()
    assert set(second.steps(tmp_path, resume=True).values()) == {"done"}
    assert second.ran == ["a", "b"]
    assert all(words[-1] == "--resume" for words in second.words)


def test_nothing_is_kept_of_another_device(tmp_path: Path) -> None:
    Machine().steps(tmp_path)
    assert device.earlier(tmp_path / device.STATE, FACTS | {"name": "H200"}) == {}


def test_a_step_gets_what_is_left_of_the_time_and_none_starts_without(tmp_path: Path) -> None:
    machine = Machine()
    done = machine.steps(tmp_path, seconds=60 + MIN_SECONDS_LEFT + GRACE)
    assert done == {"a": "done", "b": "done", "c": "not run: no time left"}
    limits = [words[words.index("--seconds") + 1] for words in machine.words]
    assert limits == [str(100 - GRACE), str(MIN_SECONDS_LEFT)]


def test_a_step_whose_packages_are_missing_says_so(tmp_path: Path) -> None:
    step = Step("a", "bench.a", (), 100, ("no_such_package", "json"))
    (one,) = device.run([step], {}, device.Run(tmp_path, FACTS, False, None, Machine().run))
    assert one.status == "not run: no_such_package missing"
    assert device.missing([step])[0] == "no_such_package"


def test_a_command_that_does_not_end_is_ended_and_its_output_kept(tmp_path: Path) -> None:
    script = "import os; print(os.environ['TRITON_INTERPRET'], flush=True); import time; time.sleep"
    log = tmp_path / "a.log"
    assert device.started([sys.executable, "-c", f"{script}(600)"], log, 5) == TIMED_OUT
    first, *last = log.read_text().splitlines()
    assert (first, last[-1]) == ("0", "KeyboardInterrupt")  # it could say what it had done
    assert (
        device.started(
            [sys.executable, "-c", "import outrider.contract.settings, bench.report"], log, 300
        )
        == 0
    )


def test_the_tests_that_need_a_gpu_are_found_where_kernels_are_compiled(tmp_path: Path) -> None:
    (step,) = (step for step in STEPS if step.module == "pytest")
    log = tmp_path / "tests.log"
    words = [sys.executable, "-m", "pytest", *step.arguments, "--collect-only"]
    assert device.started(words, log, 300) == 0
    found = log.read_text()
    for name in ("test_tree_attention", "test_gpu_engine", "test_gpu_sampling", "bfloat16"):
        assert name in found
    assert "interpret" not in found


def test_all_steps_fit_in_twenty_five_minutes_and_have_a_module() -> None:
    assert sum(step.seconds + GRACE for step in STEPS) <= 25 * 60
    assert all((Path(device.__file__).parent / f"{name}.py").exists() for name in NAMES[1:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert device.main(["--results", str(tmp_path)]) == 2
    assert "device: none" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
