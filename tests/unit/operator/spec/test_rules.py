"""Rules between fields, as `outrider run` keeps them; tests/kube asks the API server the same."""

from typing import Any

import pytest

from outrider.operator.admission import advice
from outrider.operator.spec import ServiceReader, SpecError, SpeculativeService, read_scaler
from outrider.operator.spec.reading import validate
from outrider.operator.spec.rules import TOLERATED
from tests.kube.rule_files import FOLDER, RULES, RuleFile, files, line

OF_CHANGES = {line(rule) for rule in RULES if rule.holds is None}


def problems(document: dict[str, Any]) -> list[str]:
    try:
        if document["kind"] == "SpeculativeService":
            validate(SpeculativeService, document)
        else:
            read_scaler(document)
    except SpecError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("file", files("good"), ids=lambda f: f.path.stem)
def test_what_keeps_the_rules_is_read(file: RuleFile) -> None:
    assert [problems(document) for document in file.documents] == [[]] * len(file.documents)


@pytest.mark.parametrize("file", files("bad"), ids=lambda f: f.path.stem)
def test_what_breaks_a_rule_is_refused_with_its_message(file: RuleFile) -> None:
    *before, broken = file.documents
    assert [problems(document) for document in before] == [[]] * len(before)
    assert problems(broken) == [one for one in file.problems if one not in OF_CHANGES]


def test_every_rule_has_a_bad_file_that_names_it() -> None:
    named = {one for file in files("bad") for one in file.problems}
    assert named == {line(rule) for rule in RULES}


def test_every_bad_file_has_a_good_one() -> None:
    good, bad = ({path.name for path in (FOLDER / kind).iterdir()} for kind in ("good", "bad"))
    assert good == bad


@pytest.mark.parametrize("file", files("bad"), ids=lambda f: f.path.stem)
def test_a_stored_service_may_break_rules_that_came_after_it_and_is_told(file: RuleFile) -> None:
    tolerated = [one for one in file.problems if one in map(line, TOLERATED)]
    if tolerated:
        service = ServiceReader().read(file.documents[-1])
        said = [one for one in advice.on(service) if "stored before" in one]
        assert said == [f"{one}; it was stored before that was refused" for one in tolerated]
