"""Answers of a real target keep the form that was asked for; forms that cannot be are refused."""

import json
import re

import pytest

from outrider.client import FinishReason, Format, InvalidRequest, Sampling
from tests.process.conftest import MortalDraft
from tests.process.workers import Worker, pair_with

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["small", "large"]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
REGEX = "(yes|no), (because|although) [a-z]{20,60}"
FORMS = [Format(json_schema=json.dumps(SCHEMA)), Format(regex=REGEX)]
REFUSED = [
    ({"format": Format()}, "format: None .*set one of"),
    ({"format": Format(json_object=True), "ignore_end": True}, "format: .*ignore_end"),
    ({"format": Format(json_schema='{"type": "thing"}')}, r"format\.json_schema: .*Invalid type"),
    ({"format": Format(json_schema="[1")}, r"format\.json_schema: "),
    ({"format": Format(regex="(a|b")}, r"format\.regex: .*unclosed group"),
    ({"format": Format(regex="a" * 70_000)}, r"format\.regex: '70000 bytes' .*65536"),
]


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_has_its_form_with_a_draft_and_without(
    target: Worker, draft: MortalDraft, form: Format
) -> None:
    pair_with(target, draft.address)
    sampling = Sampling(temperature=0.9, seed=4)
    ask = target.client.complete
    drafted = ask("Well", format=form, sampling=sampling, max_tokens=400)
    alone = ask("Well", format=form, sampling=sampling, max_tokens=400, speculate=False)
    assert drafted.token_ids == alone.token_ids
    assert drafted.finish_reason is FinishReason.STOP
    if form.regex:
        assert re.fullmatch(form.regex, drafted.text)
    else:
        assert set(json.loads(drafted.text)) == {"name", "kind"}


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_a_form_that_cannot_be_is_refused_with_the_reason(
    target: Worker, options: dict[str, object], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        target.client.complete("Well", **options)  # type: ignore[arg-type]
