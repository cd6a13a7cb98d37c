"""A status that older definitions refuse: the rest is said without what they do not know."""

import pytest

from outrider.operator.cluster.client import INVALID, MISTYPED, ClusterError
from outrider.operator.unknown_status import RETRY_SECONDS, UnknownStatus
from tests.unit.operator.one_service import OneService

KIND, CHAT, OTHER = "SpeculativeService", ("n", "chat"), ("n", "other")
STATUS = {"conditions": [], "advice": ["a"], "target": {"ready": "1/1", "nextRevision": "b"}}
HEAD = f"{MISTYPED} (n/chat; outrider.dev/v1alpha1, Kind=SpeculativeService): "
ONE = HEAD + ".status.%s: field not declared in schema"
TWO = (
    f"{HEAD}errors:\n"
    "  .status.advice: field not declared in schema\n"
    "  .status.target.nextRevision: field not declared in schema"
)
LONG = 'SpeculativeService "chat" is invalid: status.advice: Too many: 3: must have at most 2 items'

SHORT = (
    'SpeculativeService "chat" is invalid: [advice: Too many: 3: must have at most 2 items, '
    '<nil>: Invalid value: "null": some validation rules were not checked because the object was '
    "invalid; correct the existing errors to complete validation]"
)


@pytest.mark.parametrize(
    ("code", "reason", "named"),
    [
        (500, ONE % "advice", "status.advice"),
        (500, ONE % "target.nextRevision", "status.target.nextRevision"),
        (500, TWO, "status.advice, status.target.nextRevision"),
        (INVALID, LONG, "status.advice"),
        (INVALID, LONG.replace("advice", "conditions[0].reason"), ""),
        (INVALID, SHORT, "status.advice"),
        (INVALID, LONG.replace("status.advice", "spec.target"), ""),
        (500, ONE % "conditions", ""),
        (500, ONE % "unwritten", ""),
        (500, "etcdserver: no leader", ""),
        (403, "status.advice is forbidden", ""),
    ],
)
def test_what_an_answer_names_is_left_out_for_a_while(code: int, reason: str, named: str) -> None:
    unknown = UnknownStatus()
    assert unknown.learn(KIND, CHAT, STATUS, ClusterError("patch", code, reason), 0.0) == named
    left = unknown.without(KIND, CHAT, STATUS, 1.0)
    assert ("advice" not in left) is ("status.advice" in named)
    assert ("nextRevision" not in left["target"]) is ("nextRevision" in named)
    assert unknown.without("SpeculativeRoleScaler", CHAT, STATUS, 1.0) == STATUS
    assert unknown.without(KIND, CHAT, STATUS, RETRY_SECONDS) == STATUS
    assert STATUS["advice"] == ["a"], "what was wanted is not changed"


def test_the_same_refusal_twice_is_no_reason_to_try_again() -> None:
    unknown, error = UnknownStatus(), ClusterError("patch", 500, ONE % "advice")
    assert unknown.learn(KIND, CHAT, STATUS, error, 0.0)
    assert not unknown.learn(KIND, CHAT, STATUS, error, 1.0)


def test_a_value_that_is_refused_is_left_out_of_its_own_services_status_alone() -> None:
    unknown = UnknownStatus()
    assert unknown.learn(KIND, CHAT, STATUS, ClusterError("patch", INVALID, LONG), 0.0)
    assert "advice" not in unknown.without(KIND, CHAT, STATUS, 1.0)
    assert unknown.without(KIND, OTHER, STATUS, 1.0) == STATUS


def test_a_field_that_the_kind_does_not_have_is_left_out_of_every_status() -> None:
    unknown = UnknownStatus()
    assert unknown.learn(KIND, CHAT, STATUS, ClusterError("patch", 500, ONE % "advice"), 0.0)
    assert "advice" not in unknown.without(KIND, OTHER, STATUS, 1.0)


def test_a_service_whose_definition_is_older_is_not_silent() -> None:
    service = OneService()
    service.cluster.undeclared = {"advice", "rolledOutGeneration"}
    service.edit(lambda spec: spec["draft"].pop("resources"))
    service.rest(4)
    assert service.condition("Ready") == ("True", "Serving")
    assert not service.cluster.undeclared & service.raw["status"].keys()
    reasons = [reason for reason, _ in service.cluster.events]
    assert reasons.count("OldDefinitions") == 1
    assert reasons.count("Advice") == 1, "not of each pass"
    before = len(service.cluster.writes)
    service.rest(3)
    assert len(service.cluster.writes) == before, "it is at rest"
    service.now += RETRY_SECONDS
    service.rest(2)
    assert len(service.cluster.writes) > before, "it is tried again"
    again = [reason for reason, _ in service.cluster.events]
    assert again == reasons, "and is no news"


def test_a_definition_that_was_upgraded_gets_all_of_the_status() -> None:
    service = OneService()
    service.cluster.undeclared = {"advice"}
    service.edit(lambda spec: spec["draft"].pop("resources"))
    service.rest(4)
    service.cluster.undeclared = set()
    service.now += RETRY_SECONDS
    service.rest(2)
    assert service.raw["status"]["advice"]


def test_a_status_that_is_refused_for_its_specs_sake_is_said_in_the_servers_words() -> None:
    service = OneService()
    reason = 'SpeculativeService "chat" is invalid: spec.metrics: Invalid value: a newer rule'
    error = ClusterError("patch", INVALID, reason)
    service.cluster.refuse = lambda verb, kind: error if verb == "status" else None
    service.rest(3)
    assert service.cluster.events.count(("StatusRefused", reason)) == 1
    service.cluster.refuse = lambda verb, kind: None
    service.rest(2)
    assert service.condition("Ready") == ("True", "Serving")
