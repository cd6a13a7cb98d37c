"""A small file is there whole, or as it was before."""

from pathlib import Path

import pytest

from outrider.contract.files import write_text, write_whole


def test_a_file_and_its_folder_are_made_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "new" / "facts.json"
    for text in ("one, longer", "två"):
        write_whole(file, text)
        assert file.read_text(encoding="utf-8") == text
    assert list(file.parent.iterdir()) == [file]


def test_what_cannot_be_replaced_leaves_no_part(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    (file / "a folder in its place").mkdir(parents=True)
    with pytest.raises(OSError, match=r"facts\.json"):
        write_whole(file, "text")
    assert list(tmp_path.iterdir()) == [file]


def test_a_disk_that_is_full_is_named_by_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        write_text(file, "text")
    assert full.value.filename == str(file)
