"""A stored service keeps what a younger rule does not let everybody have; its status says so."""

from outrider.operator.cluster.client import ClusterError
from outrider.operator.status.privileges import AGAIN_SECONDS
from tests.unit.operator.one_service import OneService

ROOT = "podTemplate: runAsUser 0: not for services here (rule RootUsers)"
LABELS = "podTemplate: labels of others than outrider.dev: not for services here (rule Labels)"
POLICY = "Validation failed for ValidatingAdmissionPolicy 'stored.outrider.apps' with binding 'b': "
OTHERS = POLICY.replace("stored", "advice")


def warn(service: OneService, *words: str) -> None:
    service.cluster.warned = [f"{POLICY}{one}" for one in words]


def advice(service: OneService) -> list[str]:
    return [one for one in service.raw["status"]["advice"] if "(rule " in one]


def admitted(service: OneService) -> list[str]:
    found: list[str] = service.raw["status"].get("admitted", [])
    return found


def edit(service: OneService, rows: int) -> None:
    service.edit(lambda spec: spec.update(speculation={"maxRows": rows}))


def stored(*words: str) -> OneService:
    """A service from before the rules, and an operator that was upgraded together with them."""
    service = OneService()
    service.rest(6)
    warn(service, *words)
    service.restart()
    service.rest(3)
    return service


def test_a_service_from_before_a_rule_keeps_running_and_says_so() -> None:
    service = OneService()
    service.rest(6)
    before = service.outcome()
    service.cluster.events.clear()
    warn(service, ROOT)
    service.restart()
    service.rest(3)
    sentence = f"{ROOT}; stored before that was asked, it stays until spec is edited"
    assert advice(service) == [sentence]
    assert service.cluster.events == [("Advice", sentence)]
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("Degraded") == ("False", "AsExpected")
    assert service.outcome() == before
    assert service.writes_at_rest() == []


def test_what_the_author_was_let_have_is_no_advice_in_later_lives_either() -> None:
    service = OneService()
    warn(service, ROOT)
    service.rest(6)
    for _ in range(2):
        assert (advice(service), admitted(service)) == ([], [ROOT])
        service.restart()
        service.rest(3)


def test_an_edit_that_was_let_through_ends_the_advice() -> None:
    service = stored(ROOT)
    assert advice(service)
    edit(service, 4)
    service.rest(3)
    assert (advice(service), admitted(service)) == ([], [ROOT])


def test_a_rule_that_comes_after_an_edit_is_told_from_those_that_judged_it() -> None:
    service = OneService()
    warn(service, ROOT)
    service.rest(6)
    warn(service, ROOT, LABELS)
    service.now += AGAIN_SECONDS
    service.rest(2)
    (sentence,) = advice(service)
    assert sentence.startswith(LABELS)
    assert admitted(service) == [ROOT]


def test_a_rule_in_other_words_is_the_rule_that_the_author_was_judged_by() -> None:
    service = OneService()
    warn(service, ROOT)
    service.rest(6)
    service.cluster.events.clear()
    trusting = "only for whoever may make pods in this namespace"
    warn(service, f"podTemplate: to run as root: {trusting} (rule RootUsers)", LABELS)
    service.restart()
    service.rest(3)
    (sentence,) = advice(service)
    assert sentence.startswith(LABELS)
    assert service.cluster.events == [("Advice", sentence)]
    assert admitted(service) == [ROOT]


def test_what_is_no_longer_asked_for_is_forgotten() -> None:
    service = stored(ROOT)
    warn(service)
    edit(service, 4)
    service.rest(3)
    assert (advice(service), admitted(service)) == ([], [])


def test_a_service_is_asked_about_once_for_each_edit_and_seldom_again() -> None:
    service = OneService()
    service.rest(6)
    assert service.cluster.questions == 1
    edit(service, 4)
    service.rest(6)
    assert service.cluster.questions == 2
    service.now += AGAIN_SECONDS
    service.rest(6)
    assert service.cluster.questions == 3


def test_an_edit_that_cannot_be_asked_about_at_once_is_later() -> None:
    service = OneService()
    warn(service, ROOT)
    lost = ClusterError("patch", 0, "no answer")
    service.cluster.refuse = lambda verb, kind: lost if verb == "warnings" else None
    service.rest(6)
    assert service.condition("Ready") == ("True", "Serving")
    service.cluster.refuse = lambda verb, kind: None
    service.rest(2)
    assert (advice(service), admitted(service)) == ([], [ROOT])


def test_warnings_of_other_policies_are_not_privileges() -> None:
    service = OneService()
    service.rest(6)
    service.cluster.warned = [f"{OTHERS}spec.target: odd", "unknown field"]
    service.restart()
    service.rest(3)
    assert "odd" not in str(service.raw["status"])
