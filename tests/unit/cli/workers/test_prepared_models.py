"""Notes of what was prepared before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.workers.prepared_models import is_prepared, note_of, write_note
from outrider.contract.settings import ModelSettings, Role, WorkerSettings

COMMAND = ("worker",)


def settings(folder: Path) -> WorkerSettings:
    """Of a target whose model lies in a folder."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text("{}")
    model = ModelSettings(uri=f"file://{folder / 'model'}")
    return WorkerSettings(role=Role.TARGET, name="a", model=model, cache=str(folder / "cache"))


def said(folder: Path, **changes: Any) -> dict[str, Any]:
    """What a preparation says in the end."""
    folders = dict.fromkeys(("directory", "tokenizer", "cache"), str(folder / "model"))
    return {"prepared": {**folders, "embeddings": None, **changes}, "colocated": None}


def test_what_was_prepared_is_known(tmp_path: Path) -> None:
    one = settings(tmp_path)
    note = note_of(one, COMMAND)
    assert not is_prepared(note)
    write_note(note, said(tmp_path))
    assert is_prepared(note)
    assert note == note_of(replace(one, name="b", threads=3), COMMAND)


@pytest.mark.parametrize("key", ["directory", "cache", "embeddings"])
def test_a_folder_that_is_gone_is_prepared_again(tmp_path: Path, key: str) -> None:
    note = note_of(settings(tmp_path), COMMAND)
    write_note(note, said(tmp_path, **{key: str(tmp_path / "gone")}))
    assert not is_prepared(note)


def test_a_draft_inside_counts(tmp_path: Path) -> None:
    note = note_of(settings(tmp_path), COMMAND)
    inside = said(tmp_path, directory=str(tmp_path / "gone"))["prepared"]
    write_note(note, said(tmp_path) | {"colocated": inside})
    assert not is_prepared(note)


def test_another_model_or_file_has_another_note(tmp_path: Path) -> None:
    one = settings(tmp_path)
    notes = [
        note_of(one, COMMAND),
        note_of(one, ("other",)),
        note_of(replace(one, tensor_parallel=2), COMMAND),
        note_of(replace(one, colocated=one.model), COMMAND),
    ]
    (tmp_path / "model" / "config.json").write_text('{"trained": "again"}')
    notes.append(note_of(one, COMMAND))
    assert len(set(notes)) == len(notes)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '["/", 3, null]'])
def test_a_damaged_note_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "note").write_text(text)
    assert not is_prepared(tmp_path / "note")


def test_a_note_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    note = tmp_path / "file" / "note.json"
    write_note(note, said(tmp_path))
    assert not is_prepared(note)


def test_a_preparation_that_names_no_folder_is_not_noted(tmp_path: Path) -> None:
    write_note(tmp_path / "note", {})
    assert not is_prepared(tmp_path / "note")
