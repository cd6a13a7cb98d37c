"""Two halves of a folder's test files that take about as long, for pytests beside each other.

A file stays whole: its fixtures are started once.
"""

from collections.abc import Iterable
from pathlib import Path

USUAL = 10
"""Seconds of a file that is not listed."""
SECONDS = {
    "test_colocated": 20,
    "test_compilation": 20,
    "test_concurrent": 20,
    "test_distil": 130,
    "test_distributed_link": 60,
    "test_faults": 20,
    "test_guarded_run": 40,
    "test_hostile": 30,
    "test_images": 20,
    "test_killed_moves": 40,
    "test_killed_target": 60,
    "test_lent_memory": 20,
    "test_lost_ranks": 50,
    "test_lost_stages": 40,
    "test_openai": 40,
    "test_pipelined_target": 100,
    "test_ranks_over_machines": 20,
    "test_refusals": 20,
    "test_rest": 70,
    "test_run": 60,
    "test_same_text": 80,
    "test_shared_memory": 40,
    "test_stages": 70,
    "test_tensor_parallel": 90,
    "test_traces": 20,
}
"""Of files that take longer, on two processors, without compiling (`--durations=0` tells)."""
TOGETHER = {"test_rest": "test_killed_target", "test_tensor_parallel": "test_killed_target"}
"""Files that prepare the same model first, which takes a minute, and the file that each goes
with."""


def seconds(file: Path) -> int:
    """About how long it takes."""
    return SECONDS.get(file.stem, USUAL)


def second_half(files: Iterable[Path]) -> frozenset[Path]:
    """The files that are not to be in the first half; the same whatever their order.

    The longest goes first, each to the half that has less to do so far (Graham, 1969: LPT).
    """
    groups: dict[str, list[Path]] = {}
    for file in sorted(set(files)):
        groups.setdefault(TOGETHER.get(file.stem, file.stem), []).append(file)
    halves: tuple[list[Path], list[Path]] = ([], [])
    for group in sorted(groups.values(), key=lambda group: -sum(map(seconds, group))):
        min(halves, key=lambda half: sum(map(seconds, half))).extend(group)
    return frozenset(halves[1])
