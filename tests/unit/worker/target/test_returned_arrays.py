"""What a step of plain decoding calls."""

import sys
from types import FrameType
from typing import Any

from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.colocated_pair import ColocatedPair

STEPS = 30


def test_plain_decoding_gets_no_array_from_compiled_code() -> None:
    """Numba calls `_numba_unpickle` for each array that compiled code returns."""
    pair = ColocatedPair(sampling=SamplingParams())
    pair.submit([1, 2, 3], 200, speculate=False)
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        called.add(frame.f_code.co_qualname)

    for number in range(2 * STEPS):
        sys.setprofile(note if number >= STEPS else None)  # views are made at the first passes
        try:
            step = pair.colocated.next(pair.now)
            assert step is not None
            pair.now += 0.01
            pair.colocated.settle(step, pair.colocated.run(step), pair.now)
        finally:
            sys.setprofile(None)
    assert called
    assert "_numba_unpickle" not in called
