"""A tiny target and its draft."""

from pathlib import Path

import pytest

from outrider.distil.target import Target
from outrider.worker.checkpoints.prepared import PreparedModel
from tests.distilling import find_target
from tests.tiny_models import write_tiny


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A target of three layers."""
    folder = write_tiny(tmp_path / "target", vocab=260, layers=3)
    return find_target(folder, tmp_path / "cache")


@pytest.fixture
def model(target: Target) -> PreparedModel:
    """The same, prepared."""
    return target.prepared
