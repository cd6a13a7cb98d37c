"""The figures of answers, and the shape of what `--json` prints."""

import json
from dataclasses import replace

import pytest

from outrider.cli.placement.choose import Expected
from outrider.cli.run.answers import Answers, PromptAnswer, compared
from outrider.cli.run.figures import as_json, figures, lines, same_text
from outrider.cli.service.arrangement import Arrangement
from outrider.client import FinishReason, Result, Timing, Usage
from outrider.operator.spec import Placement

REQUIRED = {
    "text",
    "token_ids",
    "tokens",
    "tokens_per_second",
    "tokens_per_pass",
    "acceptance_rate",
    "gain",
    "draft_rows_accepted",
    "ttft_seconds",
    "seed",
}


def result(
    tokens: int = 9, decode: float = 1.0, passes: int = 4, guesses: int = 4, rows: int = 40
) -> Result:
    return Result(
        text="word " * tokens,
        token_ids=tuple(range(tokens)),
        finish_reason=FinishReason.STOP,
        usage=Usage(
            prompt_tokens=3,
            completion_tokens=tokens,
            passes=passes,
            draft_rows=rows,
            accepted_rows=5,
            passes_with_nodes=3,
            first_guesses=guesses,
            first_hits=guesses // 2,
        ),
        timing=Timing(
            first_token_seconds=0.25, total_seconds=1.5, decode_seconds=decode, plain_seconds=1.6
        ),
        seed=7,
    )


def test_one_answer_stands_under_answers_with_every_promised_key() -> None:
    [shown] = as_json(Answers([PromptAnswer("why?", result())]))["answers"]
    assert shown.keys() >= REQUIRED
    assert shown["tokens"] == 9
    assert shown["tokens_per_second"] == pytest.approx(8.0)
    assert shown["acceptance_rate"] == pytest.approx(5 / 40)
    assert shown["gain"] == pytest.approx(1.6)
    assert shown["draft_rows_accepted"] == 5
    assert shown["ttft_seconds"] == 0.25
    assert shown["seed"] == 7
    assert "plain" not in shown


def test_a_comparison_has_the_same_keys_under_plain() -> None:
    plain = result(decode=2.0, passes=8, rows=0)
    [shown] = as_json(Answers([PromptAnswer("why?", result(), plain)]))["answers"]
    assert shown["plain"].keys() >= REQUIRED
    assert shown["plain"]["acceptance_rate"] is None
    assert shown["ratio"] == pytest.approx(2.0)
    assert shown["same_text"] is True


def test_several_answers_stand_beside_their_totals() -> None:
    shown = as_json(
        Answers([PromptAnswer("a", result()), PromptAnswer("b", result(tokens=5, decode=3.0))])
    )
    assert [answer["prompt"] for answer in shown["answers"]] == ["a", "b"]
    assert shown["tokens"] == 14
    assert shown["tokens_per_second"] == pytest.approx((8 + 4) / 4.0)
    assert "text" not in shown


def test_figures_that_do_not_exist_are_null_in_json() -> None:
    nothing = result(tokens=1, decode=0.0, passes=0, rows=0)
    shown = json.loads(json.dumps(as_json(Answers([PromptAnswer("a", nothing)])), allow_nan=False))
    assert shown["tokens_per_second"] is shown["acceptance_rate"] is shown["gain"] is None


def test_the_figures_of_one_answer_are_the_client_s() -> None:
    one = result()
    shown = figures([one])
    assert shown.tokens_per_pass == pytest.approx(one.tokens_per_pass)
    assert shown.draft_share == pytest.approx(one.draft_share)
    assert shown.gain == pytest.approx(one.gain)


def test_answers_without_draft_tokens_have_no_gain() -> None:
    assert figures([result(rows=0), result(rows=0)]).gain is None
    assert figures([result(rows=0), result(rows=1)]).gain is not None


def test_arrangements_are_listed_by_their_speed_with_what_others_would_give() -> None:
    drafted, plain = Arrangement(Placement.COLOCATED, 2), Arrangement(None, 2)
    separate = Expected(Arrangement(Placement.SEPARATE, 1), 77.0)
    with_draft, without = (drafted, [result()]), (plain, [result(decode=2.0)])
    for own, second in ((with_draft, without), (without, with_draft)):
        names = (own[0].name, second[0].name)
        found = compared(["why?"], names, own[1], second[1], own_drafted=own == with_draft)
        found = replace(found, others=[(separate, 1.5)])
        assert found.arrangement == own[0].name
        assert [(line.arrangement, line.over_plain, line.ran) for line in lines(found)] == [
            ("Colocated, 2 threads", pytest.approx(2.0), True),
            ("Separate, 1 + 1 threads", pytest.approx(1.5), False),
            ("plain, 2 threads", pytest.approx(1.0), True),
        ]
        assert lines(found)[1].tokens_per_second == pytest.approx(6.0), "of plain decoding's 4.0"
        shown = as_json(found)
        assert shown["arrangement"] == own[0].name
        assert len(shown["arrangements"]) == 3
        assert shown["plain"]["tokens_per_second"] == pytest.approx(4.0)


def test_texts_are_the_same_only_if_every_token_is() -> None:
    assert same_text([PromptAnswer("a", result(), result())])
    assert not same_text(
        [PromptAnswer("a", result(), result()), PromptAnswer("b", result(), result(8))]
    )
