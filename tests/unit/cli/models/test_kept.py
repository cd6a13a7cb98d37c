"""`outrider models` and the worker that it asks, here a script that says what it was told."""

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from outrider.cli.failures import BadInput
from outrider.cli.models.kept import ModelCache, pulled, show

TARGET, DRAFT, OTHER = "hf://org/target", "hf://org/draft", "hf://org/other"
WORKER = f"""
import json, pathlib, sys
told, verb = pathlib.Path(sys.argv[1]), sys.argv[2]
if verb == "models":
    print(json.dumps({{"models": [{{"uris": [uri]}} for uri in {[TARGET, DRAFT, OTHER]}]}}))
else:
    settings = json.loads(pathlib.Path(sys.argv[sys.argv.index("--settings") + 1]).read_text())
    told.write_text(json.dumps(settings["model"]))
"""


def cache(folder: Path) -> ModelCache:
    command = (sys.executable, "-c", WORKER, str(folder / "told"))
    return ModelCache(folder / "cache", command, folder / "runs")


def test_a_draft_is_prepared_with_the_model_that_lends_its_embedding(tmp_path: Path) -> None:
    found = asyncio.run(pulled([DRAFT], cache(tmp_path), TARGET))
    told = json.loads((tmp_path / "told").read_text())
    assert (told["uri"], told["embeddings_from"]) == (DRAFT, TARGET)
    assert [one["uris"] for one in found] == [[TARGET], [DRAFT]]


def test_a_draft_that_borrows_is_refused_without_its_lender(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"target": {"uri": TARGET}}))
    with pytest.raises(BadInput, match=r"borrows the embedding .* name that: --embeddings-from$"):
        asyncio.run(pulled([OTHER, f"file://{tmp_path}"], cache(tmp_path)))
    assert not (tmp_path / "told").exists(), "nothing is fetched before"


def test_a_lender_is_of_one_draft(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^--embeddings-from is of one draft"):
        asyncio.run(pulled([DRAFT, OTHER], cache(tmp_path), TARGET))


KEPT = {
    "id": "aaaa",
    "prepared_bytes": 1,
    "download_bytes": 0,
    "changed": 0.0,
    "end_tokens": ["</s>"],
    "is_whole": True,
    "default_sampling": {"temperature": 0.7, "top_k": 20},
}


def test_a_narrow_terminal_shows_names_with_their_details_below() -> None:
    long = f"file:///{'folder/' * 20}model.gguf"
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    show([KEPT | {"uris": [TARGET, long]}, KEPT | {"uris": []}], terminal)
    assert isinstance(terminal.file, io.StringIO)
    name, details, *uris, nameless, _ = terminal.file.getvalue().splitlines()
    assert (name, nameless) == ("target", "(not known)")
    assert details.startswith("  id aaaa · in place · 19")
    assert details.endswith(" · ends at </s> · temperature 0.7, top_k 20")
    assert uris == [f"  {TARGET}", f"  {long}"]


def test_a_model_of_two_names_is_shown_under_both() -> None:
    shown = Console(file=io.StringIO(), width=100)
    cut = KEPT | {"uris": [DRAFT], "is_whole": False}
    show([KEPT | {"uris": [TARGET, OTHER]}, KEPT | {"uris": []}, cut], shown)
    assert isinstance(shown.file, io.StringIO)
    names = [line.split()[-1] for line in shown.file.getvalue().splitlines()[3:] if line.strip()]
    assert names == [TARGET, OTHER, "known)", DRAFT]
    assert "cut off" in shown.file.getvalue()
    assert "temperature 0.7, top_k 20" in shown.file.getvalue()
    assert "</s>" in shown.file.getvalue()
    assert "in place" in shown.file.getvalue(), "one byte is a note"
