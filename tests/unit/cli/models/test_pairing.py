"""What is said of a pair, and that a worker is asked once."""

import asyncio
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli.app import app
from outrider.cli.failures import BadInput
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.models.pairing import Pairing, pairing
from outrider.contract.settings import ModelSettings
from tests.tiny_models import make_unreadable, reverse_bytes, write_tiny

WORKER = """
import pathlib, sys
asked, answer, verb = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
asked.write_text((asked.read_text() if asked.exists() else "") + verb + " ")
print(answer)
"""
TARGET, DRAFT = ModelSettings(uri="hf://org/target"), ModelSettings(uri="hf://org/draft")


@pytest.mark.parametrize(
    ("answer", "found", "words"),
    [
        ('{"pair": {"share": null}}', Pairing(), ""),
        (
            '{"pair": {"share": 0.7982}}',
            Pairing(share=0.7982),
            "the draft has another tokenizer: it drafts by the 80% of its tokens that are the "
            "target's, too",
        ),
        ('{"refused": "why"}', Pairing(refused="why"), "the draft cannot be used: why"),
    ],
)
def test_a_worker_is_asked_once_how_a_draft_drafts(
    tmp_path: Path, answer: str, found: Pairing, words: str
) -> None:
    command = (sys.executable, "-c", WORKER, str(tmp_path / "asked"), answer)
    for _ in range(2):
        asked = pairing(TARGET, DRAFT, str(tmp_path), command, RunFolder(tmp_path / "runs"))
        assert asyncio.run(asked) == found
    assert str(found) == words
    assert (tmp_path / "asked").read_text() == "pair "


def test_a_pull_of_two_says_how_the_second_drafts_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    target, draft = (str(write_tiny(tmp_path / name)) for name in ("target", "draft"))
    reverse_bytes(Path(draft))
    pull = ["models", "pull", target, draft]
    assert "drafts by the 100% of its tokens" in CliRunner().invoke(app, pull).stdout
    make_unreadable(Path(draft))
    refused = CliRunner().invoke(app, pull).exception
    assert isinstance(refused, BadInput)
    assert str(refused).startswith("the draft cannot be used: the draft's tokens cannot be read")
