"""Rules between fields, as `outrider run` keeps them; tests/kube asks the API server the same."""

import pytest

from outrider.operator.admission import advice
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.spec import ServiceReader, SpecError, SpeculativeService, read_scaler
from outrider.operator.spec.reading import validate
from outrider.operator.spec.rules import TOLERATED
from tests.rules import ENTRIES, RULES, Entry, Object, line

OF_CHANGES = {line(rule) for rule in RULES if rule.holds is None}
TOLERATED_LINES = {line(rule) for rule in TOLERATED}


def problems(document: Object) -> list[str]:
    try:
        if document["kind"] == SERVICE.name:
            validate(SpeculativeService, document)
        else:
            read_scaler(document)
    except SpecError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_what_breaks_a_rule_is_refused_with_its_message_and_what_keeps_it_is_not(
    entry: Entry,
) -> None:
    assert entry.before is None or problems(entry.before) == []
    assert problems(entry.good) == []
    assert problems(entry.bad) == [one for one in entry.breaks if one not in OF_CHANGES]


def test_every_rule_has_an_entry_that_breaks_it() -> None:
    assert {one for entry in ENTRIES for one in entry.breaks} == {line(rule) for rule in RULES}


def test_a_stored_service_may_break_rules_that_came_after_it_and_is_told() -> None:
    told: set[str] = set()
    for entry in ENTRIES:
        if TOLERATED_LINES.isdisjoint(entry.breaks):
            continue
        said = [one for one in advice.on(ServiceReader().read(entry.bad)) if "stored before" in one]
        assert said == [f"{one}; it was stored before that was refused" for one in entry.breaks], (
            entry.name
        )
        told.update(entry.breaks)
    assert told == TOLERATED_LINES
