"""The pictures of the mirrored tree show what the trees' code does."""

from tools.mirrored_tree import FOLDER, pictures


def test_the_pictures_are_what_the_code_draws() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    assert written == pictures(), "run `python -m tools.mirrored_tree`"
