"""Greedy text: transformers' ids from the compiled loop in fp32, and a draft's in weights of bytes.

`greedy_ids.json` holds what transformers says after the prompt; a test with torch compares it.
"""

import json
from pathlib import Path

import pytest

from outrider.kernels.cpu.numeric_kind import NumericPath
from tests.tiny_models import write_tiny
from tests.unit.worker.tiny_engines import TinyColocated, TinyTarget, any_time_will_do

PROMPT = 20
RECORDED: list[int] = json.loads(Path(__file__).with_name("greedy_ids.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    any_time_will_do(monkeypatch)


def text(target: TinyTarget) -> list[int]:
    """Return the answer to the prompt."""
    target.submit(1, prompt=PROMPT, count=len(RECORDED))
    runs = target.run_to_end()
    in_runs = sum(len(root.done.tokens) for run in runs for root in run.roots)
    assert in_runs > len(RECORDED) // 2 or not target.roots
    return target.text()


@pytest.mark.parametrize("kind", [TinyTarget, TinyColocated])
def test_ids_of_runs_in_fp32_are_those_of_transformers(
    folder: Path, kind: type[TinyTarget]
) -> None:
    assert text(kind(folder)) == RECORDED


@pytest.mark.parametrize("path", [NumericPath.INT8, NumericPath.INT4])
def test_a_draft_changes_no_id_in_bytes(folder: Path, path: NumericPath) -> None:
    target, pair = (kind(folder, roots=0, path=path) for kind in (TinyTarget, TinyColocated))
    assert text(pair) == text(target)
    assert pair.target.report().counters.accepted_rows > 0
