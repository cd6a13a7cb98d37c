"""Lines of a chat: questions, and commands that change the talk."""

import dataclasses
import json
from pathlib import Path

import pytest

from outrider.cli.chat.commands import COMMANDS, ChatState, take
from outrider.cli.chat.conversation import Conversation
from outrider.cli.chat.session import status
from outrider.cli.failures import BadInput
from outrider.client import FinishReason, Message, Result, Timing, Usage

TOLD = Conversation("Be brief.").asked("Who are you?").answered("A pirate.")
TALK = ChatState(TOLD)
RESULT = Result(
    text="",
    token_ids=(),
    finish_reason=FinishReason.STOP,
    usage=Usage(completion_tokens=101, passes=50, draft_rows=80, accepted_rows=50),
    timing=Timing(first_token_seconds=0.0414, decode_seconds=0.5),
    seed=1,
)


def words_of(line: str, talk: ChatState = TALK) -> str:
    return take(line, talk).words


def talk_after(line: str, talk: ChatState = TALK) -> ChatState:
    step = take(line, talk)
    assert step.question is None
    assert not step.ends
    return step.talk


def test_a_line_is_a_question_and_changes_nothing_by_itself() -> None:
    step = take("Why?", TALK)
    assert (step.question, step.talk, step.words) == ("Why?", TALK, "")


def test_two_slashes_begin_a_question_with_one() -> None:
    assert take("//etc is what?", TALK).question == "/etc is what?"


def test_the_model_is_told_everything_in_order() -> None:
    asked = TOLD.asked("Why?")
    said = [(one.role, one.content) for one in asked.messages]
    assert said == [
        ("system", "Be brief."),
        ("user", "Who are you?"),
        ("assistant", "A pirate."),
        ("user", "Why?"),
    ]
    assert Conversation().asked("a").messages == (Message("user", "a"),)


def test_help_names_every_command() -> None:
    lines = words_of("/help").splitlines()
    assert [line.split()[0] for line in lines[: len(COMMANDS)]] == [f"/{name}" for name in COMMANDS]


def test_reset_keeps_the_system_prompt() -> None:
    assert talk_after("/reset").conversation == Conversation("Be brief.")


def test_system_shows_and_sets_what_the_model_is_told() -> None:
    assert words_of("/system") == "Be brief."
    assert words_of("/system", ChatState()) == "There is no system prompt."
    changed = talk_after("/system  Be kind. ").conversation
    assert (changed.system, changed.turns) == ("Be kind.", TOLD.turns)


def test_retry_asks_the_last_question_again_without_its_answer() -> None:
    step = take("/retry", TALK)
    assert step.question == "Who are you?"
    assert step.talk.conversation == Conversation("Be brief.")
    with pytest.raises(BadInput, match="needs a question before it"):
        take("/retry", ChatState())


def test_drafts_are_turned_off_and_on() -> None:
    off = talk_after("/draft off")
    assert off == dataclasses.replace(TALK, speculate=False)
    assert talk_after("/draft on", off) == TALK
    with pytest.raises(BadInput, match=r"^/draft 'maybe' is not allowed; allowed: on or off$"):
        take("/draft maybe", TALK)


def test_quit_ends_the_chat() -> None:
    assert take("/quit", TALK).ends


def test_a_command_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match=r"^/exit is not allowed; allowed: /help, /reset, "):
        take("/exit", TALK)


def test_a_saved_conversation_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    assert words_of(f"/save {file}") == f"2 turns are in {file}."
    assert json.loads(file.read_text())["messages"][0] == {"role": "system", "content": "Be brief."}
    assert talk_after(f"/load {file}", ChatState()) == TALK
    plain = ChatState(Conversation().asked("a").answered("b"))
    take(f"/save {file}", plain)
    assert talk_after(f"/load {file}") == plain


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/save", "/save needs a FILE"),
        ("/load", "/load needs a FILE"),
        ("/save /nowhere/talk.json", "No such file or directory"),
        ("/load /nowhere/talk.json", "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(line: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        take(line, TALK)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[]",
        "{}",
        '{"messages": [{"role": "user"}]}',
        '{"messages": [{"role": "robot", "content": "a"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
    ],
)
def test_a_file_without_a_conversation_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "talk.json"
    file.write_text(text)
    with pytest.raises(BadInput, match="no conversation; allowed: JSON with `messages`"):
        take(f"/load {file}", TALK)


def test_the_status_has_speed_and_acceptance() -> None:
    shown = ("101 tokens", "200.0 tokens/s", "62%", "2.00 tokens per pass", "41 ms")
    assert all(figure in status(RESULT) for figure in shown)
    assert "cut" not in status(RESULT)


def test_the_status_of_plain_decoding_speaks_of_no_draft() -> None:
    usage = dataclasses.replace(RESULT.usage, passes=100, draft_rows=0, accepted_rows=0)
    plain = dataclasses.replace(RESULT, usage=usage, finish_reason=FinishReason.LENGTH)
    assert "200.0 tokens/s" in status(plain)
    assert "--max-tokens or the context" in status(plain)
    assert not any(word in status(plain) for word in ("acceptance", "pass"))
