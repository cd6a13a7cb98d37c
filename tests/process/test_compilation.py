"""What `compile` makes beforehand is what an engine runs; a start does without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from tests.process.workers import settings_for
from tests.tiny_models import write_draft_of, write_tiny

ROOT = Path(__file__).parents[2]


def compiled_and_further(settings: WorkerSettings) -> tuple[int, list[str]]:
    """Return the kernels that were compiled beforehand, and those that an engine takes besides."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.compiled_engine"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        input=settings.to_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, *further = done.stdout.split("\n")
    return int(count), [one for one in further if one]


@pytest.mark.parametrize("role", ["target", "draft", "both"])
def test_an_engine_compiles_nothing_that_was_not_compiled_beforehand(
    tmp_path: Path, role: str
) -> None:
    model = write_tiny(tmp_path / "target", hidden=256, layers=3, vocab=600)
    draft = write_draft_of(model, tmp_path / "draft", layers=1)
    inside = ModelSettings(uri=f"file://{draft}", dtype=Dtype.FP32)
    settings = settings_for(
        Role.DRAFT if role == "draft" else Role.TARGET,
        model,
        tmp_path / "cache",
        colocated=inside if role == "both" else None,
        threads=2,
    )
    count, further = compiled_and_further(settings)
    assert count > 10
    assert further == []
