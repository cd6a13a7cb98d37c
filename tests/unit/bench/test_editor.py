"""Requests of `bench.editor`, and what its answers come to."""

import pytest

from bench import editor
from bench.editor import COLD, PLAIN, EditorAnswer, figures, rate, typed_on, with_wrong_lines
from bench.prompts.editor import FILES, ROOT, edits, places


def test_a_place_is_a_hole_in_a_file_between_the_text_before_it_and_behind() -> None:
    for name, place in zip(FILES, places(len(FILES)), strict=True):
        text = (ROOT / name).read_text(encoding="utf-8")
        end = text.index(place.before) + len(place.before)
        assert place.after in text[end:]
        assert len(text) - end > len(place.after), "something is to be filled in"


def test_two_places_of_a_file_are_not_the_same() -> None:
    found = places(2 * len(FILES))
    assert len(set(found)) == 2 * len(FILES)


def test_an_edit_asks_for_code_that_it_shows() -> None:
    for one in edits(3):
        assert one.code in one.prompt
        assert one.wish in one.prompt


def test_a_prediction_that_is_right_for_nine_tenths_has_a_wrong_line_in_ten() -> None:
    lines = [f"line {number}" for number in range(50)]
    found = with_wrong_lines("\n".join(lines)).split("\n")
    assert sum(one != other for one, other in zip(lines, found, strict=True)) == 5


def test_what_is_typed_on_is_the_beginning_of_the_suggestion() -> None:
    (place,) = places(1)
    assert typed_on(place, "return 1\n").before == place.before + "retu"


def test_figures_are_of_the_same_situation_and_texts_are_compared_with_the_first_side() -> None:
    own = {COLD: [EditorAnswer("a", 1.0, 3.0, 21), EditorAnswer("b", 2.0, 4.0, 11)]}
    other = {COLD: [EditorAnswer("a", 1.0, 2.0, 21), EditorAnswer("c", 2.0, 2.5, 11)]}
    found = figures({PLAIN: own, "text": other})[COLD]
    assert found[PLAIN]["rate"] == pytest.approx(30 / 4)
    assert found["text"]["rate"] == rate(other[COLD]) == pytest.approx(20)
    assert (found[PLAIN]["same_text"], found["text"]["same_text"]) == (1.0, 0.5)
    ratios = editor.ratios({"fill": {COLD: found}, "edit": {}})
    assert ratios[f"fill, {COLD}: text, rate over plain"] == pytest.approx(20 / 7.5)
