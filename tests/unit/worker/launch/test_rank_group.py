"""Groups that cannot be are refused before anything starts."""

from pathlib import Path

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.launch.rank_group import RankGroup
from outrider.worker.parallel.placement import RankPlacement
from tests.tiny_models import write_tiny


def test_more_ranks_than_attention_heads_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, heads=4)
    prepared = PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0" * 64, None)
    model = ModelSettings(uri=f"file://{tmp_path}")
    settings = WorkerSettings(role=Role.TARGET, name="tiny", model=model, tensor_parallel=5)
    with pytest.raises(ModelError, match=r"tensor_parallel: 5 is not allowed; tiny has 4 att"):
        RankGroup(settings, prepared, RankPlacement(), rows=64)
