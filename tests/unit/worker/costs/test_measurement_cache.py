"""What measured facts are remembered by."""

import platform
from pathlib import Path

import pytest

from outrider.kernels.jit import isa
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.costs.measurement_cache import facts_file
from tests.tiny_models import write_tiny


def test_each_instruction_set_has_facts_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tmp_path)
    config = read_config(tmp_path)
    names = isa.available(isa.host_features(), platform.machine())
    files = set()
    for name in names:
        monkeypatch.setattr(isa, "current", lambda name=name: name)
        files.add(facts_file(tmp_path, "costs", config, 1))
        assert facts_file(tmp_path, "costs", config, 1) in files
    assert len(files) == len(names)
