"""An engine whose draft cannot be used serves its target alone, and says why."""

from pathlib import Path
from typing import Any

from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.engine.transport import ThreadTransport
from outrider.worker.launch.colocated import ColocatedScheduler
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.run import build_engine
from outrider.worker.messages import Ready
from tests.tiny_models import make_unreadable, write_tiny


def test_a_draft_in_the_process_that_cannot_be_used_leaves_the_target_alone(
    tmp_path: Path,
) -> None:
    draft = make_unreadable(write_tiny(tmp_path / "draft"))
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{write_tiny(tmp_path / 'target')}", dtype=Dtype.FP32),
        colocated=ModelSettings(uri=f"file://{draft}", dtype=Dtype.FP32),
        cache=str(tmp_path / "cache"),
        kv_bytes=1 << 24,
    )
    sent: list[Any] = []
    engine = build_engine(settings, prepare_models(settings), ThreadTransport(sent.extend))
    assert not isinstance(engine, ColocatedScheduler)
    (ready,) = [one for one in sent if isinstance(one, Ready)]
    assert "the draft's tokens cannot be read" in ready.refused_draft
