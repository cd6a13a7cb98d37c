"""What a step of one sequence calls: a pass empties the caches, so each call is paid for."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.one_process import OneProcess

STEPS = 30
PLAIN_CALLS, VERIFY_CALLS, DRAFT_CALLS = 139, 189, 201
"""Python functions that a step may call, those of the stand-in models among them: 5 more than it
does."""
TEXT_VERIFY_CALLS, TEXT_DRAFT_CALLS = 14, 16
"""What the text as a source may add to those."""


class Calls:
    """Python functions called in one step, by name."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.by_name[frame.f_code.co_qualname] += 1


def steps_of(
    speculate: bool, sources: tuple[SourceKind, ...] = (SourceKind.DRAFT,)
) -> dict[str, list[Counter[str]]]:
    """Return the calls of each step of a decoding sequence, by kind."""
    pair = OneProcess(sampling=SamplingParams())
    policy = PolicySettings(version=2, off_below_percent=0, sources=sources)
    pair.target.row_selector.set_policy(policy, pair.now)
    pair.submit([1, 2, 3], 200, speculate=speculate)
    found: dict[str, list[Counter[str]]] = {"plain": [], "verify": [], "draft": []}
    for number in range(3 * STEPS):
        calls = Calls()
        sys.setprofile(calls)
        try:
            step = pair.serial.next(pair.now)
            assert step is not None
            pair.now += 0.01
            pair.serial.settle(step, pair.serial.run(step), pair.now)
        finally:
            sys.setprofile(None)
        kind = "draft" if isinstance(step, DraftBatch) else "verify"
        if number >= STEPS:  # views are made at the first pass of a shape
            found[kind if speculate else "plain"].append(calls.by_name)
    return found


def least(steps: list[Counter[str]]) -> int:
    return min(sum(step.values()) for step in steps)


def test_a_step_makes_few_calls() -> None:
    plain, drafted = steps_of(False)["plain"], steps_of(True)
    assert least(plain) <= PLAIN_CALLS
    assert least(drafted["verify"]) <= VERIFY_CALLS
    assert least(drafted["draft"]) <= DRAFT_CALLS


def test_the_text_as_a_source_adds_few_calls() -> None:
    without = steps_of(True)
    beside = steps_of(True, (SourceKind.DRAFT, SourceKind.SUFFIX))
    added = {kind: least(beside[kind]) - least(without[kind]) for kind in ("verify", "draft")}
    assert added["verify"] <= TEXT_VERIFY_CALLS, added
    assert added["draft"] <= TEXT_DRAFT_CALLS, added


def test_plain_decoding_gets_no_array_from_compiled_code() -> None:
    for step in steps_of(False)["plain"]:
        assert step["_numba_unpickle"] == 0, "numba calls it for each array that it returns"
