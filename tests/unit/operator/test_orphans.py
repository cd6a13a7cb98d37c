"""A service that was deleted with `--cascade=orphan`, and comes again."""

import copy
from typing import Any

import pytest

from outrider.operator.naming import FIELD_MANAGER
from tests.unit.operator.one_service import KEY, OneService

SERVICE = ("SpeculativeService", *KEY)


def orphaned() -> OneService:
    """A service at rest that is made anew, beside children that nobody owns."""
    service = OneService()
    service.rest()
    for stored in service.cluster.stored.values():
        if stored.body["kind"] not in ("SpeculativeService", "Pod", "ReplicaSet"):
            stored.body["metadata"].pop("ownerReferences", None)
    body = copy.deepcopy(service.raw)
    for key in ("uid", "resourceVersion", "generation"):
        body["metadata"].pop(key, None)
    body.pop("status")
    service.cluster.stored.pop(SERVICE)
    service.cluster.put(body)
    return service


def children(service: OneService) -> list[dict[str, Any]]:
    found = [stored.body for stored in service.cluster.stored.values()]
    return [one for one in found if one["kind"] not in ("SpeculativeService", "Pod", "ReplicaSet")]


def test_its_children_are_taken_up_and_no_pod_is_replaced() -> None:
    service = orphaned()
    names = {(one["kind"], one["metadata"]["name"]) for one in children(service)}
    pods = {one["metadata"]["uid"] for one in service.cluster.of("Pod")}
    service.rest()
    assert service.condition("Stalled")[0] == "False"
    assert service.condition("Ready")[0] == "True"
    found = children(service)
    assert {(one["kind"], one["metadata"]["name"]) for one in found} == names
    owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in found}
    assert owners == {service.raw["metadata"]["uid"]}
    assert {one["metadata"]["uid"] for one in service.cluster.of("Pod")} == pods


def test_what_is_no_longer_wanted_of_them_goes() -> None:
    service = orphaned()
    body = service.cluster.stored[SERVICE].body
    body["spec"].pop("draft")
    service.rest()
    left = {(one["kind"], one["metadata"]["name"]) for one in children(service)}
    assert ("Deployment", "chat-target") in left
    assert not [one for one in left if "draft" in one[1]]


@pytest.mark.parametrize("lacks", ["label", "manager", "nothing but another owner"])
def test_an_object_that_only_looks_like_its_own_is_left_alone(lacks: str) -> None:
    service = orphaned()
    meta = service.cluster.stored["Service", KEY[0], KEY[1]].body["metadata"]
    if lacks == "label":
        meta["labels"]["outrider.dev/service"] = "other"
    elif lacks == "manager":
        fields = meta["managedFields"]
        meta["managedFields"] = [one for one in fields if one["manager"] != FIELD_MANAGER]
    else:
        other = service.cluster.of("Pod")[0]["metadata"]
        meta["ownerReferences"] = [{"kind": "Pod", "name": other["name"], "uid": other["uid"]}]
    service.rest(3)
    assert service.condition("Degraded") == ("True", "ForeignObject")
