"""A service whose drafts are in their targets' pods, in a small cluster: links, status, edits."""

import copy
from typing import Any

import pytest
import yaml

from tests.unit.operator.one_service import SPEC, OneService

HERE = "127.0.0.1:50052"


def spec(**draft: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SPEC)
    found["target"]["replicas"] = 2
    found["draft"] |= {"placement": "SamePod", **draft}
    return found


def test_each_target_is_told_of_the_draft_in_its_own_pod() -> None:
    service = OneService(spec())
    service.rest()
    assert service.policy["drafts"] == [HERE]
    assert {p.drafts for p in service.workers.policies.values()} == {(HERE,)}
    assert len(service.cluster.of("Pod")) == 2
    assert service.condition("SpeculationActive") == ("True", "Active")


def test_drafts_have_a_status_of_their_own() -> None:
    service = OneService(spec())
    service.rest()
    status = service.raw["status"]
    assert status["target"]["ready"] == status["draft"]["ready"] == "2/2"
    service.workers.links_up = 0.0
    service.rest(4)
    status = service.raw["status"]
    assert (status["target"]["ready"], status["draft"]["ready"]) == ("2/2", "0/2")
    assert service.condition("Ready") == ("True", "Serving")


def test_the_condition_names_what_carries_the_links() -> None:
    service = OneService(spec())
    service.workers.transport = "shared_memory"
    service.rest()
    every = service.raw["status"]["conditions"]
    (said,) = (c["message"] for c in every if c["type"] == "LinkEstablished")
    assert said == "2 of 2 links are up, through shared memory"


def test_drafting_that_does_not_pay_is_left_to_the_targets_and_gives_no_pod_back() -> None:
    service = OneService(spec())
    service.rest()
    service.workers.gain = 0.5
    service.rest(30)
    assert service.condition("SpeculationActive") == ("True", "Active")
    assert [d["spec"]["replicas"] for d in service.cluster.of("Deployment")] == [2]
    assert len(service.cluster.of("Pod")) == 2


@pytest.mark.parametrize("there", [True, False])
def test_a_draft_moves_in_and_out(there: bool) -> None:
    inside, outside = spec(), spec()
    del outside["draft"]["placement"]
    service = OneService(inside if there else outside)
    service.rest()
    service.edit(lambda found: found.update(copy.deepcopy(outside if there else inside)))
    service.rest()
    deployments = {d["metadata"]["name"] for d in service.cluster.of("Deployment")}
    assert deployments == ({"chat-target", "chat-draft"} if there else {"chat-target"})
    assert (HERE in service.policy["drafts"]) is not there
    assert service.condition("LinkEstablished") == ("True", "Connected")


def test_settings_of_both_stay_while_a_pod_may_start_from_them() -> None:
    service = OneService(spec())
    service.rest()

    def names() -> set[str]:
        return {m["metadata"]["name"] for m in service.cluster.of("ConfigMap")}

    before = names()
    service.edit(lambda found: found["draft"].update(engine={"threads": 2}))
    service.pass_()
    service.pass_()
    assert before < names()
    service.rest()
    assert not before <= names()
    assert len(before) == len(names())
