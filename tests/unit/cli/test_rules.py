"""Rules between fields, as `outrider run` keeps them; tests/kube asks the API server the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.service.rules import LIBRARY, UNCHECKED, broken_rules, check_rules
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.spec import SpecError, SpecPart, load_document
from outrider.operator.spec.part import Rule
from outrider.operator.spec.reading import validate
from outrider.operator.spec.scaler import SpeculativeRoleScaler
from tests.rules import ENTRIES, RULES, Entry, Object, line

OF_CHANGES = {line(*rule) for rule in RULES if "oldSelf" in rule[1]["rule"]}


def problems(document: Object) -> list[str]:
    is_service = document["kind"] == SERVICE.name
    try:
        check_rules(
            load_document(document) if is_service else validate(SpeculativeRoleScaler, document)
        )
    except SpecError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_what_breaks_a_rule_is_refused_with_its_message_and_what_keeps_it_is_not(
    entry: Entry,
) -> None:
    assert entry.before is None or problems(entry.before) == []
    for good in entry.good:
        assert problems(good) == []
    for bad in entry.bad:
        assert problems(bad) == [one for one in entry.breaks if one not in OF_CHANGES]


def test_every_rule_has_an_entry_that_breaks_it() -> None:
    assert {one for entry in ENTRIES for one in entry.breaks} == {line(*rule) for rule in RULES}


def test_all_rules_that_are_broken_are_listed_at_once(head: Object) -> None:
    model = {"uri": "hf://o/s"}
    head["spec"]["draft"] = {"model": model, "placement": "Colocated", "replicas": 0, "image": "m"}
    head["spec"]["speculation"] = {
        "enable": {"gainAbovePercent": 9},
        "disable": {"gainBelowPercent": 9},
    }
    assert [one.split(":")[0] for one in problems(head)] == [
        "spec.draft.replicas",
        "spec.draft",
        "spec.speculation.enable.gainAbovePercent",
    ]


def test_a_free_mapping_may_hold_what_cel_has_no_word_for(head: Object) -> None:
    odd = {"spec": {"priority": 1 << 70, "x": {None: b"\xff", (1, 2): float("nan")}}}
    head["spec"]["target"] |= {"podTemplate": odd, "resources": {"limits": {"cpu": 1}}}
    assert problems(head) == []
    head["spec"]["draft"] = {"model": {"uri": "hf://o/s"}, "placement": "Colocated"}
    assert problems(head) == []
    head["spec"]["draft"]["podTemplate"] = odd
    assert [one.split(":")[0] for one in problems(head)] == ["spec.draft"]


@pytest.fixture
def head() -> Object:
    """The smallest service."""
    (good, *_) = next(entry.good for entry in ENTRIES if entry.name == "name")
    return {**good, "spec": {"target": {"model": {"uri": "hf://o/l"}}}}


@pytest.mark.parametrize("cel", ["self.odd > 1", "self.number", "self.number > 'a'"])
def test_a_rule_that_gives_no_answer_is_an_error_of_ours(cel: str) -> None:
    class Part(SpecPart):
        rules = (Rule(cel, "may not happen"),)
        number: int = 1

    with pytest.raises(RuntimeError, match="may not happen"):
        list(broken_rules(Part()))


def test_where_cel_is_missing_that_is_said_and_fields_are_checked_nevertheless(
    head: Object, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    code = (
        "import sys\n"
        f"sys.modules['{LIBRARY}'] = None\n"
        "from outrider.cli.__main__ import main\n"
        "sys.exit(main())\n"
    )

    def validated(cache: Object) -> "subprocess.CompletedProcess[str]":
        head["spec"]["target"]["cache"] = cache
        file.write_text(json.dumps(head))
        command = (sys.executable, "-c", code, "validate", str(file))
        return subprocess.run(command, capture_output=True, text=True)

    passed = validated({"accessMode": "ReadWriteOnce"})
    assert (passed.returncode, passed.stderr) == (0, f"{file}: {UNCHECKED}\n")
    assert "spec.target.cache.size: 'much'" in validated({"size": "much"}).stderr


def test_cel_is_loaded_only_where_a_description_is_checked() -> None:
    code = (
        "import sys, outrider.cli.app, outrider.cli.service.file, outrider.cli.commands.run\n"
        "assert not any(name.startswith('cel_expr') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
