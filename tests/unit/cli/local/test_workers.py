"""What is said of workers on this machine."""

import pytest

from outrider.cli.local.workers import numeric_path
from outrider.contract.state import EngineState


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({"fp32": 0.03, "bf16": 0.02, "int8": 0.01}, "bf16 20.00 ms, fp32 30.00 ms"),
        ({"int8": 0.01}, "no other"),
    ],
)
def test_it_is_said_what_a_numeric_path_was_chosen_from(
    seconds: dict[str, float], words: str
) -> None:
    engine = EngineState(
        max_context=64,
        dtype="int8",
        threads=1,
        max_running=1,
        kv_bytes=1,
        prefix_cache=True,
        path_seconds=seconds,
    )
    line = numeric_path("pair-target-0", engine)
    assert line.startswith("pair-target-0 ")
    assert line.index("int8") < line.index("10.00 ms") < line.index(words)
