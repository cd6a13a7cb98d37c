"""Lanes of a run: each file is in one. Halves of a folder: the same in any order."""

from collections import Counter
from pathlib import Path

import pytest

from tests.halves import SECONDS, TOGETHER, second_half
from tests.lanes import LANES, PROCESS, TESTS

FILES = sorted(TESTS.rglob("test_*.py"))
OF_PROCESSES = sorted(PROCESS.glob("test_*.py"))


def files_by_lane(run: list[Path]) -> dict[str, set[Path]]:
    return {lane.name: set(lane.files(run)) for lane in LANES}


def test_no_file_of_a_run_of_all_is_in_two_lanes() -> None:
    own = files_by_lane(FILES)
    of_each = Counter(file for files in own.values() for file in files)
    assert set(of_each.values()) == {1}
    assert own["unit"] == {file for file in FILES if TESTS / "unit" in file.parents}
    assert own["process"] < set(OF_PROCESSES)


def test_a_run_of_one_folder_or_file_of_processes_has_no_lanes() -> None:
    for run in (OF_PROCESSES, OF_PROCESSES[:1]):
        assert not any(files_by_lane(run).values())


def test_one_file_of_processes_is_not_in_a_lane_whatever_runs_beside_it() -> None:
    assert not files_by_lane([OF_PROCESSES[0], TESTS / "unit" / "test_layout.py"])["process"]


def test_halves_keep_their_files_in_any_order() -> None:
    assert second_half(reversed(OF_PROCESSES)) == second_half(OF_PROCESSES)


@pytest.mark.parametrize(("file", "other"), TOGETHER.items())
def test_files_that_prepare_the_same_model_are_in_the_same_half(file: str, other: str) -> None:
    second = {one.stem for one in second_half(OF_PROCESSES)}
    assert (file in second) == (other in second)


def test_every_file_that_is_listed_is_there() -> None:
    names = {file.stem for file in OF_PROCESSES}
    assert not (SECONDS.keys() | TOGETHER.keys() | set(TOGETHER.values())) - names


def test_a_file_that_nobody_listed_goes_to_the_half_that_has_less_to_do() -> None:
    long, short, new = (PROCESS / name for name in ("test_distil.py", "test_run.py", "test_new.py"))
    assert second_half([long, short]) == {short}
    assert second_half([long, short, new]) == {short, new}
