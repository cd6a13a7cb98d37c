"""The policy that a worker finds at its start, which an operator of another version may have
written."""

import json
import logging
from pathlib import Path

import pytest

from outrider.contract.settings import (
    ModelSettings,
    PolicySettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.worker.__main__ import with_policy

SETTINGS = WorkerSettings(role=Role.TARGET, name="chat", model=ModelSettings(uri="file:///none"))


def test_a_worker_starts_with_the_policy_that_was_stored(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    assert with_policy(SETTINGS, file) is SETTINGS, "none was"
    file.write_text(PolicySettings(version=7, max_rows=3).to_json())
    assert with_policy(SETTINGS, file).policy.max_rows == 3


@pytest.mark.parametrize("newer", [{"newer": 1}, {"sources": ["newer"]}])
def test_a_policy_that_it_does_not_understand_is_left_out_and_logged(
    newer: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"version": 7, **newer}))
    with caplog.at_level(logging.WARNING):
        assert with_policy(SETTINGS, file) is SETTINGS
    assert str(file) in caplog.text


def test_a_policy_that_cannot_be_read_ends_the_worker(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=str(tmp_path)):
        with_policy(SETTINGS, tmp_path)
