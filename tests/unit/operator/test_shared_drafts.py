"""A service whose targets link to another's drafts: links, status, certificates, network."""

import base64
import datetime
from typing import Any

import yaml
from cryptography import x509

from outrider.contract.settings import CERTIFICATE, Role, WorkerSettings
from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import DEPLOYMENT, SECRET
from outrider.operator.manifests.child import child
from outrider.operator.manifests.network import network_policy
from outrider.operator.naming import labels
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.surroundings import NetworkPolicy
from tests.unit.operator.one_service import START, OneService
from tests.unit.operator.small_cluster import Stored, copied, object_key
from tests.unit.operator.small_controllers import reference

SPEC = """
target: {model: {uri: "hf://org/large"}, replicas: 2}
draftsOf: pool
"""
POOL: Object = {
    "apiVersion": "outrider.dev/v1alpha1",
    "kind": "SpeculativeService",
    "metadata": {"namespace": "default", "name": "pool", "uid": "pool's", "generation": 1},
    "spec": {},
}
SET: Object = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"namespace": "default", "name": "pool-draft-1", "uid": "set's"},
}
BEGAN = datetime.datetime.fromtimestamp(START, datetime.UTC)


def draft_pod(name: str, ip: str, ready: bool = True) -> dict[str, Any]:
    status = "True" if ready else "False"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": name,
            "labels": labels("pool", "draft"),
            "ownerReferences": [reference(SET)],
        },
        "status": {
            "podIP": ip,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": status}],
        },
    }


def pool() -> tuple[Object, ...]:
    """Return what the pool has but for its pods."""
    made = child(DEPLOYMENT, Owner.of(POOL), "pool-draft", Role.DRAFT)
    made["metadata"] |= {"uid": "deployment's", "resourceVersion": "1"}
    owners = {"ownerReferences": [reference(made)]}
    return copied(POOL), made, {**SET, "metadata": {**SET["metadata"], **owners}}


def words(service: OneService, kind: str) -> str:
    every = service.raw["status"]["conditions"]
    return next(c["message"] for c in every if c["type"] == kind)


def guest(*pods: dict[str, Any], **around: Any) -> OneService:
    service = OneService(yaml.safe_load(SPEC), **around)
    for one in (*pool(), *pods) if pods else ():
        service.cluster.stored[object_key(one)] = Stored(one, {})
    service.controllers.idle.add("pool-draft")
    service.rest()
    return service


def test_targets_link_to_the_ready_drafts_of_the_other_service() -> None:
    service = guest(
        draft_pod("pool-draft-a", "10.0.0.7"), draft_pod("pool-draft-b", "10.0.0.8", ready=False)
    )
    assert service.policy["drafts"] == ["10.0.0.7:50051"]
    assert {p.drafts for p in service.workers.policies.values()} == {("10.0.0.7:50051",)}
    assert service.condition("DraftAvailable") == ("True", "Ready")
    assert words(service, "DraftAvailable") == "1 drafts of pool take sessions"
    assert service.condition("LinkEstablished") == ("True", "Connected")
    made = [one["metadata"]["name"] for one in service.cluster.of("Deployment")]
    assert made == ["chat-target", "pool-draft"]


def test_a_pod_that_carries_the_labels_of_the_others_drafts_is_none_of_them() -> None:
    stranger = draft_pod("stranger", "10.0.0.9")
    stranger["metadata"]["ownerReferences"] = []
    service = guest(draft_pod("pool-draft-a", "10.0.0.7"), stranger)
    assert service.policy["drafts"] == ["10.0.0.7:50051"]


def test_drafts_that_go_take_no_request_with_them() -> None:
    service = guest(draft_pod("pool-draft-a", "10.0.0.7"))
    del service.cluster.stored["Pod", "default", "pool-draft-a"]
    service.rest()
    assert service.policy["drafts"] == []
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("DraftAvailable") == ("False", "PodsNotReady")
    assert service.condition("SpeculationActive")[1] == "DraftLost"


def test_a_service_that_lends_nothing_leaves_its_guest_serving() -> None:
    service = guest()
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("LinkEstablished") == ("False", "Connecting")


def test_the_certificate_of_a_guest_is_that_of_a_target_of_the_lender_too() -> None:
    signers = Authorities().renewed(BEGAN)
    service = guest(kinds=(SECRET,), authorities=lambda: signers)
    secret = service.cluster.stored["Secret", "default", "chat-target-certificate"].body
    found = x509.load_pem_x509_certificate(base64.b64decode(secret["data"][CERTIFICATE]))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "target.chat.default.outrider",
        "target.pool.default.outrider",
    ]
    texts = (one["data"].get("settings.json") for one in service.cluster.of("ConfigMap"))
    (settings,) = (WorkerSettings.from_json(text) for text in texts if text)
    assert settings.peers is not None
    assert settings.peers.draft == "draft.pool.default.outrider"


def test_a_guest_that_can_no_longer_be_read_keeps_its_certificate() -> None:
    signers = Authorities().renewed(BEGAN)
    service = guest(kinds=(SECRET,), authorities=lambda: signers)
    secret = service.cluster.stored["Secret", "default", "chat-target-certificate"]
    before = dict(secret.body["data"])
    service.edit(lambda spec: spec["target"].update(replicas="two"))
    service.rest()
    assert service.condition("Stalled") == ("True", "InvalidSpec")
    assert secret.body["data"] == before


def test_the_lenders_drafts_admit_the_pods_that_the_guests_targets_are() -> None:
    service = guest()
    (made,) = service.cluster.of("Deployment")
    pods = made["spec"]["template"]["metadata"]["labels"]
    owner, wanted = Owner("default", "pool", "uid"), NetworkPolicy()
    (links, *_) = network_policy(owner, Role.DRAFT, wanted, False, (), "")["spec"]["ingress"]
    admitted = [one["podSelector"]["matchLabels"] for one in links["from"]]
    assert any(one.items() <= pods.items() for one in admitted)
    other = network_policy(Owner("default", "other", "uid"), Role.DRAFT, wanted, False, (), "")
    theirs = [one["podSelector"]["matchLabels"] for one in other["spec"]["ingress"][0]["from"]]
    assert not any(one.items() <= pods.items() for one in theirs)
