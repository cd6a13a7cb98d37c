"""The pictures of the mirrored tree show what the trees' code does."""

from xml.etree import ElementTree

import pytest
from tools.mirrored_tree import FOLDER, pictures
from tools.mirrored_tree.example import Moment, moments

PAGE = (FOLDER.parent / "speculation.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def seen() -> list[Moment]:
    return list(moments())


def test_the_pictures_are_what_the_code_draws() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    assert written == pictures(), "run `python -m tools.mirrored_tree`"


@pytest.mark.parametrize("name", pictures())
def test_a_picture_is_well_formed_and_on_the_page(name: str) -> None:
    root = ElementTree.fromstring((FOLDER / name).read_text(encoding="utf-8"))
    title = root.findtext("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.startswith(f"{name.removesuffix('.svg')}. ")
    assert f"(mirrored-tree/{name})" in PAGE


def test_both_copies_are_equal_before_and_after(seen: list[Moment]) -> None:
    assert seen[0].draft == seen[0].target
    assert seen[-1].draft == seen[-1].target
    assert all(moment.draft != moment.target for moment in seen[1:-1])


def test_the_walk_accepts_a_path_and_samples_at_every_row(seen: list[Moment]) -> None:
    pass_of_four = seen[1].target
    assert pass_of_four.accepted == {1, 3}
    assert pass_of_four.sampled == {0: "blue", 1: "because", 2: "and", 3: "of"}


def test_what_crossed_is_committed_or_dead(seen: list[Moment]) -> None:
    assert seen[2].target.nodes == ()
    assert seen[2].target.text == ("is", "blue", "because", "of")
    assert seen[3].fates[4] == "committed at 14"
    assert seen[3].fates[5] == "dead"


def test_the_page_tells_the_same_example(seen: list[Moment]) -> None:
    assert [node.word for node in seen[0].draft.nodes] == ["blue", "clear", "because"]
    assert [node.word for node in seen[-1].draft.nodes] == ["light"]
    for told in ("committed at 12 and 13, id 2 is dead", 'root, "of", is at 14', '"light" below 4'):
        assert told in PAGE
