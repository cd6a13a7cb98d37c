"""A service in a namespace that another operator looks after is left alone, and that is said."""

from outrider.operator.cluster.claims import Claim
from outrider.operator.cluster.client import ClusterError
from tests.unit.operator.one_service import KEY, OneService

OURS, THEIRS = "a/one", "b/two"


class Told:
    """Claims as the test has them."""

    def __init__(self, claim: Claim) -> None:
        self.holder = OURS
        self.now: Claim | ClusterError = claim

    async def claim(self, namespace: str) -> Claim:
        assert namespace == KEY[0]
        if isinstance(self.now, ClusterError):
            raise self.now
        return self.now


def test_a_service_of_another_operator_is_not_written_to_and_its_pods_are_not_asked() -> None:
    service = OneService(claims=Told(Claim(THEIRS, False)))
    service.rest(4)
    assert service.cluster.writes == []
    assert "status" not in service.raw, "it is the other one's to write"
    ((reason, note),) = service.cluster.events
    assert reason == "NamespaceClaimed"
    assert f"{THEIRS} manages {service.raw['metadata']['namespace']}, {OURS} does not" in note


def test_a_service_is_taken_up_and_let_go_as_its_claim_changes_hands() -> None:
    claims = Told(Claim(OURS, True))
    service = OneService(claims=claims)
    service.rest(4)
    assert service.condition("Ready") == ("True", "Serving")
    claims.now = Claim(THEIRS, False)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    assert service.writes_at_rest() == []
    claims.now = Claim(OURS, True)
    service.rest(4)
    assert service.raw["status"]["observedGeneration"] == service.raw["metadata"]["generation"]
    claims.now = Claim(THEIRS, False)
    service.rest(2)
    told = [reason for reason, _ in service.cluster.events]
    assert told.count("NamespaceClaimed") == 2, "once each time"


def test_a_rival_is_advice_while_it_is_there() -> None:
    claims = Told(Claim(OURS, True, THEIRS))
    service = OneService(claims=claims)
    service.rest(4)
    said = [one for one in service.raw["status"]["advice"] if THEIRS in one]
    assert len(said) == 1
    assert [note for reason, note in service.cluster.events if reason == "Advice"] == said
    claims.now = Claim(OURS, True)
    service.rest(2)
    assert not [one for one in service.raw["status"].get("advice", ()) if THEIRS in one]


def test_while_nobody_knows_whose_it_is_nothing_is_written() -> None:
    claims = Told(Claim(OURS, True))
    service = OneService(claims=claims)
    service.rest(4)
    claims.now = ClusterError("get", 0, "no answer")
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    assert service.writes_at_rest() == []
    assert "no answer" in str(service.retries[-1])
