"""Jobs have the lengths that were asked for, and are the same for the same seed."""

import json
import random
import statistics
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.failures import BadInput
from outrider.cli.load.lengths import SHAREGPT_ANSWER, SHAREGPT_PROMPT, Lengths
from outrider.cli.load.prompts import Turn, bundled, read
from outrider.cli.load.workload import (
    CHARACTERS_PER_TOKEN,
    PAIRS,
    TOKENS_PER_TURN,
    Job,
    LoadWorkload,
    conversation,
)

TEXTS = [one.text for one in bundled()]


def jobs(count: int, seed: int = 1, **fields: object) -> list[Job]:
    settings = {"source": bundled(), "lengths": Lengths(), **fields}
    return list(islice(LoadWorkload(**settings).jobs(seed), count))  # type: ignore[arg-type]


def tokens(turns: tuple[Turn, ...]) -> float:
    return sum(len(turn.content) / CHARACTERS_PER_TOKEN + TOKENS_PER_TURN for turn in turns)


def test_lengths_are_those_of_the_papers() -> None:
    rng = random.Random(1)
    for mix, mean, ratio in (
        (SHAREGPT_PROMPT, 161.31, 5696 / 1730),
        (SHAREGPT_ANSWER, 337.99, 834 / 415),
    ):
        sampled = sorted(mix.sample(rng) for _ in range(40_000))
        assert statistics.fmean(sampled) == pytest.approx(mean, rel=0.05)
        assert sampled[36_000] / sampled[20_000] == pytest.approx(ratio, rel=0.05)


@given(st.integers(1, 3000), st.integers(0, 2**31))
def test_a_conversation_is_about_as_long_as_asked_and_ends_with_the_user(
    length: int, seed: int
) -> None:
    turns = conversation(TEXTS, length, random.Random(seed))
    assert all(turn.content for turn in turns)
    assert [turn.role for turn in turns[::-2]] == ["user"] * len(turns[::-2])
    assert turns[0].role == "user"
    assert all(turn.role == "assistant" for turn in turns[1::2])
    assert tokens(turns) == pytest.approx(length, abs=15)


@given(st.integers(0, 2**31))
def test_the_same_seed_gives_the_same_jobs(seed: int) -> None:
    assert jobs(5, seed) == jobs(5, seed)
    assert jobs(5, seed) != jobs(5, seed + 1)


def test_fixed_lengths_and_caps_hold() -> None:
    fixed = jobs(20, lengths=Lengths(prompt=300, answer=20))
    assert {job.max_tokens for job in fixed} == {20}
    assert all(tokens(job.turns) == pytest.approx(300, abs=15) for job in fixed)
    capped = jobs(200, lengths=Lengths(longest_prompt=100, longest_answer=50))
    assert max(job.max_tokens for job in capped) == 50
    assert max(tokens(job.turns) for job in capped) <= 115


def test_a_share_is_cancelled_somewhere_in_its_stream() -> None:
    cancelled = [job for job in jobs(2000, cancel_share=0.25) if job.cancel_after is not None]
    assert len(cancelled) == pytest.approx(500, rel=0.15)
    points = [(job.cancel_after or 0) / job.max_tokens for job in cancelled]
    assert min(points) < 0
    assert statistics.fmean(p for p in points if p >= 0) == pytest.approx(0.5, abs=0.1)


def test_a_check_asks_a_few_pairs_again_and_again_among_others() -> None:
    found = jobs(8 * PAIRS, checked_pairs=PAIRS)
    pairs = [job for job in found if job.pair is not None]
    assert len(pairs) == 4 * PAIRS
    by_number = {number: {j for j in pairs if j.pair == number} for number in range(PAIRS)}
    assert all(len(alike) == 1 for alike in by_number.values())
    assert {job.temperature for job in pairs} == {0.0, 0.8}


@pytest.mark.parametrize("lines", [False, True])
def test_own_prompts_are_read_in_every_form(tmp_path: Path, lines: bool) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "c"}]
    entries = ["a", {"prompt": "b", "max_tokens": 9}, {"messages": messages}]
    text = "\n\n".join(map(json.dumps, entries)) if lines else json.dumps(entries, indent=1)
    (tmp_path / "own").write_text(text)
    found = read(tmp_path / "own")
    assert [one.turns[-1] for one in found] == [Turn("user", text) for text in "abc"]
    assert [one.max_tokens for one in found] == [None, 9, None]
    asked = jobs(30, source=found)
    assert {job.turns for job in asked} == {one.turns for one in found}
    assert {job.max_tokens for job in asked if job.turns == found[1].turns} == {9}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no prompt"),
        ("[]", "holds no prompt"),
        ('"a"\n{"prompt": ', "line 2 is not JSON"),
        ("5", "entry 1 is 5; allowed: a text"),
        ('{"text": "a"}', "unknown key 'text'"),
        ('{"prompt": ""}', "entry 1 is"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens 0 is not a whole number above 0"),
        ('{"messages": [{"role": "user"}]}', "entry 1 is"),
        ('{"messages": [{"role": "user", "content": 5}]}', "entry 1 is"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own").write_text(text)
    with pytest.raises(BadInput, match=r"--prompts .*own") as refused:
        read(tmp_path / "own")
    assert words in str(refused.value)
