"""What a target writes: chats that follow from their numbers, with the features of every token."""

import itertools

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from outrider.contract.settings import Dtype
from outrider.distil.answers import LONGEST, SHORTEST, Chats, check_layout, repeats_itself
from outrider.distil.chat_layout import ChatLayout
from outrider.distil.engine import Room, engine_of
from outrider.distil.errors import BadRecipe
from outrider.distil.prompts import Opening, PromptList, Question
from outrider.distil.shards import ANSWERED, ASKED, GIVEN, Chat
from outrider.distil.target import Target
from outrider.distil.teacher import features_of
from outrider.distil.templates import BUNDLED, Templates
from outrider.worker.checkpoints.load import load
from outrider.worker.model.tensor_names import EMBEDDING
from tests.distilling import layout_of, written
from tests.tiny_models import END_ID, TEMPLATE

SKY = PromptList(["Why is the sky blue?"], seed=0, held_out=0)


def same(one: Chat, other: Chat) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("tokens", "writers", "features")
    )


def test_features_make_the_tokens_of_an_answer_without_sampling(target: Target) -> None:
    _, weights = load(target.prepared)
    for chat in written(target.prepared, 3, greedy=1.0):
        answered = np.flatnonzero(chat.writers == ANSWERED)
        logits = chat.features[answered - 1].astype(np.float32) @ weights[EMBEDDING].T
        gap = logits.max(axis=1) - logits[np.arange(len(answered)), chat.tokens[answered]]
        assert gap.max() < 0.05  # features are kept in fp16


def test_a_chat_written_beside_others_is_the_chat_written_alone(target: Target) -> None:
    many = written(target.prepared, 12, slots=5)
    for number in (0, 4, 11):
        (alone,) = written(target.prepared, 1, slots=1, first=number)
        assert same(alone, many[number])


def test_chats_come_in_the_order_of_their_numbers_from_any_of_them(target: Target) -> None:
    whole, rest = (
        written(target.prepared, 9, slots=4),
        written(target.prepared, 4, first=5, slots=3),
    )
    assert all(same(*pair) for pair in zip(whole[5:], rest, strict=True))
    assert len({chat.tokens.tobytes() for chat in whole}) == len(whole)


def test_another_seed_writes_other_chats(target: Target) -> None:
    one, other = (written(target.prepared, 6, SKY, seed, greedy=0.0) for seed in (1, 2))
    assert [c.tokens.tolist() for c in one] != [c.tokens.tolist() for c in other]


def test_sampled_answers_to_one_question_differ_and_others_do_not(target: Target) -> None:
    def kinds(greedy: float) -> int:
        return len({c.tokens.tobytes() for c in written(target.prepared, 4, SKY, greedy=greedy)})

    assert kinds(1.0) == 1
    assert kinds(0.0) > 1


def test_chats_that_are_held_out_are_answered_without_sampling(target: Target) -> None:
    chats = Chats(SKY, layout_of(target.prepared), 1, held_out=10, greedy=0.0)
    assert [chats(number).temperature > 0 for number in range(13)] == [False] * 10 + [True] * 3


def test_a_question_that_the_target_writes_is_marked_so(target: Target) -> None:
    class Nothing:
        def question(self, number: int) -> Question:
            return Question(Opening.NOTHING, "")

    (chat,) = written(target.prepared, 1, Nothing(), seed=3)
    runs = [writer for writer, _ in itertools.groupby(chat.writers.tolist())]
    assert runs == [GIVEN, ASKED, GIVEN, ANSWERED]
    assert len(chat.features) == len(chat.tokens) - 1


def test_an_end_token_ends_a_chat(target: Target) -> None:
    for chat in written(target.prepared, 6):
        assert END_ID not in chat.tokens[np.argmax(chat.writers == ANSWERED) : -1]
        assert len(chat.tokens) <= LONGEST


def test_a_prompt_that_is_too_long_leaves_room_for_an_answer(target: Target) -> None:
    (chat,) = written(target.prepared, 1, PromptList(["sky " * 500], seed=0, held_out=0))
    assert 0 < (chat.writers == ANSWERED).sum() <= LONGEST - (chat.writers == GIVEN).sum()


@pytest.mark.parametrize("words", ["sky " * 500, "λόγος " * 300])
def test_a_prompt_that_is_too_long_loses_its_end_and_the_layout_stays(
    target: Target, words: str
) -> None:
    layout = layout_of(target.prepared)
    begin = Chats(PromptList([words], seed=0, held_out=0), layout, 1, 0)(0).tokens
    assert LONGEST - SHORTEST - 4 <= len(begin) <= LONGEST - SHORTEST
    assert tuple(begin[: len(layout.before)]) == layout.before
    assert tuple(begin[-len(layout.after) :]) == layout.after
    question = layout.text.decode(begin[len(layout.before) : -len(layout.after)])
    assert words.startswith(question)


def test_a_layout_without_room_for_an_answer_is_refused(target: Target) -> None:
    layout = layout_of(target.prepared)
    check_layout(layout)
    layout.text._tokenizer.chat_template = "{{ '" + "x" * 300 + "' }}" + TEMPLATE
    with pytest.raises(BadRecipe, match=r"puts 303 tokens around a question; allowed: \d+"):
        check_layout(layout)


def test_words_of_a_question_have_no_token_that_begins_a_text(target: Target) -> None:
    layout = layout_of(target.prepared)
    layout.text._backend.post_processor = TemplateProcessing(
        single="<|system|> $A", special_tokens=[("<|system|>", END_ID + 3)]
    )
    assert layout.text.encode("How")[0] == END_ID + 3
    assert layout.begun("How") == [*layout.before, *b"How"]


def test_a_target_that_cannot_ask_is_asked_whole_questions(target: Target) -> None:
    layout = layout_of(target.prepared)
    assert layout.can_ask
    assert not ChatLayout(layout.text, layout.ends, (), ()).can_ask
    source = Templates(1, BUNDLED["templates"], whole=True)
    assert {source.question(number).opening for number in range(50)} == {Opening.ALL}


def test_answers_that_repeat_themselves_are_found() -> None:
    assert repeats_itself([9, 9, 9, *[1, 2, 3] * 6])
    assert repeats_itself([7] * 16)
    assert not repeats_itself([1, 2, 3, 4] * 2 + [1, 2, 3, 5] * 2)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.INT8])
def test_a_teacher_finds_the_features_that_the_writer_had(target: Target, dtype: Dtype) -> None:
    from outrider.distil.answers import Writer

    layout = layout_of(target.prepared)
    chats = Chats(Templates(1, BUNDLED["templates"]), layout, 1, 0)
    engine = engine_of(target.prepared, dtype, Room(4, LONGEST), None, 1)
    wrote = list(Writer(engine, layout, chats, 4, 1).write(0, 5))
    for chat in wrote:
        assert np.array_equal(features_of(engine, chat.tokens), chat.features)
    engine.close()
