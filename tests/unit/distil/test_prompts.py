"""Prompts: what files and sets say, and which number has which."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bench.prompts.pairs import TASKS
from outrider.distil.asked import Asked
from outrider.distil.errors import BadRecipe
from outrider.distil.open_sets import OPEN_SETS
from outrider.distil.prompts import HELD_OUT, MixedPrompts, Opening, PromptList, read_prompts
from outrider.distil.recipe import Recipe
from outrider.distil.templates import BUNDLED, SLOT, Templates

ROOT = Path(__file__).parents[3]
TEMPLATES = BUNDLED["templates"]
each_set = pytest.mark.parametrize("folder", BUNDLED.values(), ids=BUNDLED)


def recipe(folder: Path, *prompts: str, test_prompts: Path | None = None) -> Recipe:
    return Recipe(target="file://x", out=folder, prompts=prompts, test_prompts=test_prompts)


def write(file: Path, count: int) -> Path:
    file.write_text("".join(f"{file.stem} {i}\n" for i in range(count)))
    return file


@each_set
def test_templates_follow_from_seed_and_number_and_come_in_all_kinds(folder: Path) -> None:
    first, again, other = (
        [Templates(seed, folder).question(n) for n in range(60)] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert Templates(1, folder).question(37) == first[37]
    assert {question.opening for question in first} == set(Opening)
    assert not [question for question in first if SLOT.search(question.text.partition("```")[0])]


@each_set
def test_every_template_can_be_filled_and_every_slot_is_used(folder: Path) -> None:
    slots = {file.stem: file.read_text().splitlines() for file in (folder / "slots").glob("*.txt")}
    used: Counter[str] = Counter()
    for file in (folder / "questions").glob("*.txt"):
        for line in file.read_text().splitlines():
            names = [name for _, name in SLOT.findall(line)]
            assert line.count("{") == len(names), line
            used |= Counter(names)
    assert slots.keys() == used.keys()
    assert [name for name in used if used[name] > len(set(slots[name]))] == []


def test_a_question_names_nothing_twice() -> None:
    templates = Templates(3, TEMPLATES, whole=True)
    asked = [templates.question(number).text for number in range(6000)]
    cooked = [text for text in asked if text.startswith("I have ") and "cook?" in text]
    assert len(cooked) > 8
    for text in cooked:
        listed = text.removeprefix("I have ").removesuffix(". What can I cook?")
        named = listed.replace(" and ", ", ").split(", ")
        assert len(set(named)) == len(named) == 3


def test_an_article_is_that_of_the_word_behind_it() -> None:
    templates = Templates(3, TEMPLATES, whole=True)
    asked = " ".join(templates.question(number).text for number in range(6000))
    assert re.findall(r"\b[Aa] (?!eu|on[ce]|uni|use)[aeiou]\w+", asked) == []
    assert re.findall(r"\b[Aa]n [^aeiouASh\W]\w+", asked) == []
    assert " an owl" in asked


def test_few_questions_are_asked_again() -> None:
    templates = Templates(3, TEMPLATES, whole=True)
    asked = Counter(templates.question(number).text for number in range(6000))
    assert len(asked) > 5000
    assert max(asked.values()) < 10


@pytest.mark.parametrize(
    ("bundled", "tested"),
    [("templates", "unseen_chats"), ("templates", "blind_chats"), ("code", "unseen_code")],
)
def test_no_question_is_one_that_drafts_are_tested_on(bundled: str, tested: str) -> None:
    asked: set[frozenset[str]] = set()
    for seed in (11, 12):
        templates = Templates(seed, BUNDLED[bundled], whole=True)
        asked |= {words(templates.question(number).text) for number in range(6000)}
    file = ROOT / "bench" / "prompts" / f"{tested}.txt"
    for line in file.read_text(encoding="utf-8").splitlines():
        one = words(line)
        assert [other for other in asked if len(one & other) > 0.8 * len(one | other)] == [], line


def test_code_to_test_on_has_the_tasks_of_the_pairs() -> None:
    lines = (ROOT / "bench" / "prompts" / "unseen_code.txt").read_text(encoding="utf-8")
    assert set(TASKS) <= set(lines.splitlines())


def test_code_in_a_question_stands_on_lines_of_its_own() -> None:
    code = Templates(3, BUNDLED["code"], whole=True)
    asked = [code.question(number).text for number in range(600)]
    fenced = [text for text in asked if text.count("```") == 2]
    assert len(fenced) > 50
    assert all(text.split("```")[1].count("\n") > 1 for text in fenced)
    assert not [text for text in asked if r"\n" in text]


def test_a_source_that_is_named_twice_asks_nothing_twice() -> None:
    one, other = (PromptList([f"{name} {i}" for i in range(9)], 3, 0) for name in "ab")
    mixed = MixedPrompts([one, one, other])
    asked = [mixed.question(number).text for number in range(12)]
    assert asked[2::3] == [other.question(number).text for number in range(4)]
    assert sorted([*asked[0::3], *asked[1::3]]) == sorted(
        one.question(number).text for number in range(8)
    )


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def test_prompts_that_are_held_out_are_asked_once() -> None:
    listed = PromptList([f"prompt {i}" for i in range(20)], seed=3, held_out=5)
    asked = [listed.question(number).text for number in range(50)]
    assert len(set(asked[:5])) == 5
    assert not set(asked[:5]) & set(asked[5:])
    assert len(set(asked[5:])) == 15
    assert asked[5:20] == asked[20:35]


def test_a_file_has_a_prompt_a_line_each_once(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("Why?\n\n  How?  \nWhy?\n")
    assert read_prompts(file) == ["Why?", "How?"]


def test_json_lines_have_their_prompts_under_usual_names(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "d"}]
    lines = [{"prompt": "a"}, {"instruction": "b"}, {"question": "c"}, {"messages": turns}]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert read_prompts(file) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\nnothing', "line 2: Expecting value"),
        ('{"text": "a"}', "line 1: one of prompt, instruction, question or messages"),
        ('{"messages": "a"}', "line 1: one of"),
        ("[]", "line 1: an object is needed"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text)
    with pytest.raises(BadRecipe, match=message):
        read_prompts(file)


def test_too_few_prompts_are_refused(tmp_path: Path) -> None:
    few = write(tmp_path / "few.txt", 2 * HELD_OUT - 1)
    with pytest.raises(BadRecipe, match=r"few.txt: 127 prompts are too few: 64 are held out"):
        Asked.of(recipe(tmp_path, str(few)), True)
    enough = write(tmp_path / "enough.txt", 2 * HELD_OUT)
    assert Asked.of(recipe(tmp_path, str(enough)), True).held_out == HELD_OUT


def test_a_set_that_is_not_there_is_named_beside_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadRecipe, match=r"nosuch: no such file; .* templates, chatterbot$"):
        Asked.of(recipe(tmp_path, "nosuch"), True)


def test_sources_take_turns_and_hold_out_what_later_numbers_lack(tmp_path: Path) -> None:
    files = [str(write(tmp_path / f"{name}.txt", 80)) for name in "ab"]
    source = Asked.of(recipe(tmp_path, *files), True).source
    asked = [source.question(number).text for number in range(400)]
    assert [text[0] for text in asked[:4]] == ["a", "b", "a", "b"]
    assert not set(asked[:HELD_OUT]) & set(asked[HELD_OUT:])


def test_prompts_of_their_own_are_tested_on(tmp_path: Path) -> None:
    few, tested = write(tmp_path / "few.txt", 3), write(tmp_path / "tested.txt", 4)
    asked = Asked.of(recipe(tmp_path, str(few), test_prompts=tested), True)
    assert asked.held_out == 4
    found = [asked.source.question(number).text for number in range(10)]
    assert found[:4] == [f"tested {i}" for i in range(4)]
    assert set(found[4:]) == {"few 0", "few 1", "few 2"}


def test_what_is_tested_on_is_never_trained_on(tmp_path: Path) -> None:
    both, tested = write(tmp_path / "both.txt", 9), tmp_path / "tested.txt"
    tested.write_text("both 3\nboth 5\n")
    asked = Asked.of(recipe(tmp_path, str(both), "templates", test_prompts=tested), True)
    later = {asked.source.question(number).text for number in range(2, 60)}
    assert not later & {"both 3", "both 5"}
    assert {f"both {i}" for i in (0, 1, 2, 4, 6, 7, 8)} < later
    with pytest.raises(BadRecipe, match=r"tested.txt: none is left to train on"):
        Asked.of(recipe(tmp_path, str(tested), test_prompts=tested), True)


@pytest.mark.parametrize("can_ask", [True, False])
def test_whole_questions_of_templates_that_are_held_out_do_not_come_again(
    tmp_path: Path, can_ask: bool
) -> None:
    source = Asked.of(recipe(tmp_path, "templates"), can_ask).source
    asked = [source.question(number) for number in range(5000)]
    whole = [one.text if one.opening is Opening.ALL else None for one in asked]
    held_out = {text for text in whole[:HELD_OUT] if text}
    assert held_out
    assert not held_out & set(whole[HELD_OUT:])


def test_what_one_source_holds_out_another_does_not_ask(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", 80)
    other = tmp_path / "b.txt"
    other.write_text("".join(f"a {i}\n" for i in range(10, 90)))
    source = Asked.of(recipe(tmp_path, str(file), str(other)), True).source
    asked = [source.question(number).text for number in range(600)]
    assert not set(asked[:HELD_OUT]) & set(asked[HELD_OUT:])


def test_a_line_of_json_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    texts = ["one\u2028two", "three\x85four"]
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    file.write_text("\r\n".join(lines) + "\n")
    assert read_prompts(file) == texts


def test_what_is_asked_is_told_apart(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", 200)
    one = Asked.of(recipe(tmp_path, str(file)), True).digest
    assert Asked.of(recipe(tmp_path, str(file)), True).digest == one
    write(file, 201)
    assert Asked.of(recipe(tmp_path, str(file)), True).digest != one


def test_the_corpus_gives_the_first_turn_of_each_conversation(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "categories: [A]\nconversations:\n- - What is AI?\n  - A branch.\n- - Hi\n- - What is AI?\n"
    )
    read = OPEN_SETS["chatterbot"].read
    assert read(tmp_path) == ["What is AI?", "Hi", "What is AI?"]
