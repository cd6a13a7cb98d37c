import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.device_run import Entry, Task, earlier, sweep


def task(name: str, done: list[str], error: Exception | None = None) -> Task:
    def measure() -> Entry:
        done.append(name)
        if error:
            raise error
        return {"microseconds": 1.0}

    return Task(name, measure)


def shown(entry: Entry) -> str:
    return str(entry["case"])


def nowhere(entries: Sequence[Entry]) -> None:
    """Saves nothing."""


def test_a_case_that_fails_stops_no_other_and_shows_in_the_status() -> None:
    done: list[str] = []
    error = RuntimeError("CUDA error: an illegal memory access\nand advice")
    tasks = [task("a", done, error), task("b", done)]
    outcome = sweep(tasks, {}, None, nowhere, shown)
    assert done == ["a", "b"]
    assert outcome.status == 1
    assert [one["case"] for one in outcome.measured] == ["b"]
    assert outcome.entries[0]["failed"] == "RuntimeError: CUDA error: an illegal memory access"
    assert outcome.said() == "1 cases measured; 1 failed: a"


def test_what_was_measured_is_kept_and_what_failed_comes_again_at_the_end() -> None:
    done: list[str] = []
    kept: dict[str, Entry] = {
        "a": {"case": "a", "failed": "no"},
        "b": {"case": "b", "microseconds": 2.0},
        "gone": {"case": "gone", "microseconds": 2.0},
    }
    outcome = sweep([task(name, done) for name in "abc"], kept, None, nowhere, shown)
    assert done == ["c", "a"]
    assert {one["case"]: one["microseconds"] for one in outcome.entries} == {"a": 1, "b": 2, "c": 1}
    assert outcome.status == 0


def test_no_case_starts_after_the_time_is_up() -> None:
    done: list[str] = []
    saved: list[int] = []
    times = iter([0.0, 0.0, 5.0, 11.0])
    outcome = sweep(
        [task(name, done) for name in "abc"], {}, 10, lambda some: saved.append(len(some)), shown,
        lambda: next(times),
    )  # fmt: skip
    assert done == ["a", "b"]
    assert saved == [1, 2]  # after each case: a run that is cut off loses one
    assert outcome.left == ["c"]
    assert outcome.status == 1


def test_only_what_the_same_device_and_versions_measured_is_kept(tmp_path: Path) -> None:
    facts = {"name": "H100", "torch": "2.11", "triton": "3.6"}
    path = tmp_path / "report.json"
    assert earlier(path, facts, "kernels") == {}
    results = {"device": facts, "kernels": [{"case": "a"}]}
    path.write_text(json.dumps({"results": results}))
    assert earlier(path, facts, "kernels") == {"a": {"case": "a"}}
    assert earlier(path, facts | {"triton": "3.7"}, "kernels") == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
@pytest.mark.parametrize(
    ("module", "folder"),
    [
        *(("decode_step", ""), ("gpu.device_text", ""), ("gpu.invariance", ""), ("gpu.tuning", "")),
        *(("gpu.device_facts", "--report"), ("kernels", "--report"), ("device", "--results")),
    ],
)
def test_without_a_device_one_line_says_so_and_nothing_is_written(
    module: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [folder, str(tmp_path / "new")] if folder else []
    assert importlib.import_module(f"bench.{module}").main(words) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "CUDA device" in said
    assert list(tmp_path.iterdir()) == []
