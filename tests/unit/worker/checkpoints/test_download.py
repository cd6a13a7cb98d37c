"""Download of a repository: its files, and the bytes that are told while they come."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_hub import COMMIT, hub_of
from tests.tiny_models import write_tiny

SCRIPT = """
import json, sys
from outrider.worker.errors import ModelError
from outrider.worker.checkpoints.source import ModelSource
told = []
try:
    found = ModelSource.parse(sys.argv[1]).resolve(lambda *one: told.append(one))
except ModelError as error:
    found = f"refused: {error}"
print(json.dumps([str(found), told]))
"""


def resolved(
    uri: str, endpoint: str, cache: Path, offline: str = "0"
) -> tuple[str, list[tuple[str, int, int]]]:
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_CACHE": str(cache / "hub"),
        "HF_HUB_OFFLINE": offline,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, uri],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "it/s" not in done.stderr, "the library draws no bars of its own"
    found, told = json.loads(done.stdout)
    return found, [tuple(one) for one in told]


def test_a_repository_is_fetched_once_and_its_bytes_are_told(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny")
    (model / "README.md").write_text("not needed")
    needed = [file for file in model.iterdir() if file.name != "README.md"]
    total = sum(file.stat().st_size for file in needed)
    with hub_of(model, "org/tiny") as endpoint:
        found, told = resolved("hf://org/tiny", endpoint, tmp_path / "hub")
        again, silent = resolved("hf://org/tiny", endpoint, tmp_path / "hub")
    assert found == again
    assert found.endswith(f"/snapshots/{COMMIT}")
    assert sorted(file.name for file in Path(found).iterdir()) == sorted(f.name for f in needed)
    assert {stage for stage, _, _ in told} == {"download"}
    assert told[-1] == ("download", total, total)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert silent == [], "nothing was fetched"


@pytest.mark.parametrize("uri", ["hf://org/other", "hf://org/tiny@v9"])
def test_a_repository_or_revision_that_is_not_there_is_named(tmp_path: Path, uri: str) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny") as endpoint:
        found, _ = resolved(uri, endpoint, tmp_path / "hub")
    assert found.startswith(f"refused: model {uri}: ")


def test_a_hub_that_cannot_be_reached_is_named_in_one_line_with_what_helps(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found, _ = resolved("hf://org/tiny", endpoint, tmp_path / "hub")
    assert found.startswith(f"refused: model hf://org/tiny: {endpoint} ")
    assert all(word in found for word in ("Connection refused", "HF_ENDPOINT", "HTTPS_PROXY"))
    assert "\n" not in found


def test_a_hub_that_may_not_be_asked_is_no_hub_that_is_lost(tmp_path: Path) -> None:
    found, _ = resolved("hf://org/tiny", "http://127.0.0.1:1", tmp_path / "hub", offline="1")
    assert found.startswith("refused: model hf://org/tiny: HF_HUB_OFFLINE ")
    assert "HF_ENDPOINT" not in found
