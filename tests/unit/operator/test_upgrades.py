"""Operators of other versions: no pod goes unasked, and edits are carried out."""

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.certificates.authority import Authorities
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.interfaces import Object
from outrider.operator.naming import RESTARTED_ANNOTATION
from outrider.operator.observed.pins import Pin, settings_of, template_of
from tests.unit.operator.one_service import START, OneService

GROUPS = {"target": {"model": {"uri": "hf://org/large"}, "parallelism": {"tensor": 2, "nodes": 2}}}


def served(**given: Any) -> OneService:
    """The service, at rest, whose pods an operator with the image worker:1 made."""
    service = OneService(**given)
    service.rest(4)
    return service


def succeed(service: OneService, image: str = "worker:2", **settings: Any) -> OneService:
    """An operator of another version goes on with the service."""
    service.image = image
    for name, value in settings.items():
        setattr(service, name, value)
    service.restart()
    return service


def signing() -> Authorities:
    """Those of an operator that gives workers certificates, which are in their settings."""
    return Authorities().renewed(datetime.datetime.fromtimestamp(START, datetime.UTC))


def images(service: OneService, name: str = "chat") -> dict[str, str]:
    """The image of each role's newest template."""
    found = {one["metadata"]["name"]: one for one in service.cluster.of("Deployment")}
    return {
        role: found[f"{name}-{role}"]["spec"]["template"]["spec"]["containers"][0]["image"]
        for role in Role
        if f"{name}-{role}" in found
    }


def pods(service: OneService) -> list[str]:
    return [pod["metadata"]["uid"] for pod in service.cluster.of("Pod")]


def status(service: OneService, role: str = "target") -> Object:
    found: Object = service.raw["status"][role]
    return found


def test_another_operator_replaces_no_pod_and_says_what_waits() -> None:
    service = served()
    before, revision = pods(service), status(service)["revision"]
    succeed(service).rest(4)
    assert (pods(service), images(service)) == (before, {"target": "worker:1", "draft": "worker:1"})
    assert status(service)["revision"] == revision
    assert status(service)["nextRevision"] not in ("", revision)
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("Progressing") == ("False", "Complete")
    assert [reason for reason, _ in service.cluster.events].count("UpgradeWaits") == len(Role)
    assert service.writes_at_rest() == []


def test_the_operator_before_it_takes_over_again_as_if_nothing_had_been() -> None:
    service = served()
    before = pods(service)
    succeed(service).rest(4)
    succeed(service, "worker:1").rest(4)
    assert pods(service) == before
    assert "nextRevision" not in status(service)


def test_an_edit_of_a_role_rolls_that_role_alone_with_what_the_operator_makes_today() -> None:
    service = succeed(served())
    service.rest(2)
    service.edit(lambda spec: spec["target"].update(cache={"size": "1Gi"}))
    service.rest(4)
    assert images(service) == {"target": "worker:2", "draft": "worker:1"}
    assert "nextRevision" not in status(service)
    assert "nextRevision" in status(service, "draft")


def test_an_edit_that_concerns_no_pod_asks_for_nothing() -> None:
    service = succeed(served())
    service.rest(2)
    before = pods(service)
    for image in ("worker:2", "worker:3"):
        succeed(service, image).rest(2)
        service.edit(lambda spec: spec.update(networkPolicy={"mode": "Disabled"}))
        service.rest(2)
        service.edit(lambda spec: spec.pop("networkPolicy"))
        service.rest(2)
    assert pods(service) == before


def test_an_image_of_the_services_own_is_its_own_choice() -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(image="ours:1"))
    service.rest(4)
    succeed(service).rest(2)
    assert "nextRevision" not in status(service)
    service.edit(lambda spec: spec["target"].update(image="ours:2"))
    service.rest(2)
    assert images(service) == {"target": "ours:2", "draft": "worker:1"}


@pytest.mark.parametrize("dies_after", range(12))
def test_nothing_is_replaced_wherever_the_operators_end(dies_after: int) -> None:
    service = served()
    before = pods(service)
    service.image = "worker:2"
    service.restart(dies_after)
    service.pass_()
    service.restart(dies_after)
    service.pass_()
    succeed(service).rest(3)
    assert pods(service) == before


@pytest.mark.parametrize("dies_after", range(12))
def test_an_edit_is_carried_out_wherever_the_operator_ends(dies_after: int) -> None:
    service = served()
    succeed(service).rest(2)
    service.edit(lambda spec: spec["target"].update(cache={"size": "1Gi"}))
    service.restart(dies_after)
    service.pass_()
    succeed(service, "worker:3").rest(3)
    assert images(service)["target"] in ("worker:2", "worker:3")
    template = service.cluster.of("Deployment")[1]["spec"]["template"]
    assert {"sizeLimit": "1Gi"} in [
        volume.get("emptyDir") for volume in template["spec"]["volumes"]
    ]


def test_a_role_that_is_scaled_meanwhile_gets_pods_of_the_kept_revision() -> None:
    authorities = signing()
    service = succeed(served(), authorities=lambda: authorities)
    service.rest(2)
    kept = status(service)["revision"]
    service.edit(lambda spec: spec.update(suspend="Suspended"))
    service.rest(2)
    assert pods(service) == []
    service.edit(lambda spec: spec.pop("suspend"))
    service.rest(2)
    assert images(service)["target"] == "worker:1"
    (target,) = (p for p in service.cluster.of("Pod") if "target" in p["metadata"]["name"])
    assert target["metadata"]["labels"]["outrider.dev/revision"] == kept
    maps = {one["metadata"]["name"] for one in service.cluster.of("ConfigMap")}
    assert maps.issuperset(settings_of(target)), "with the settings that it starts from"


def test_pods_whose_settings_are_gone_become_as_the_operator_makes_them_today() -> None:
    authorities = signing()
    service = succeed(served(), authorities=lambda: authorities)
    service.rest(2)
    (name,) = settings_of(_template(service, "chat-target"))
    service.cluster.remove(("ConfigMap", "default", name))
    service.rest(4)
    assert images(service) == {"target": "worker:2", "draft": "worker:1"}


def _template(service: OneService, name: str) -> Object:
    found = (one for one in service.cluster.of("Deployment") if one["metadata"]["name"] == name)
    template: Object = next(found)["spec"]["template"]
    return template


def test_groups_are_kept_and_new_ones_are_as_the_old_ones_are() -> None:
    service = served(spec=GROUPS)
    before = pods(service)
    succeed(service).rest(4)
    assert pods(service) == before
    service.edit(lambda spec: spec["target"].update(replicas=2))
    service.rest(4)
    assert _groups(service) == (2, "worker:1")
    service.replace_pods()
    service.rest(8)
    assert _groups(service) == (2, "worker:2")


def _groups(service: OneService) -> tuple[int, str]:
    """How many groups the target has, and the image of the newest."""
    (one,) = service.cluster.of("LeaderWorkerSet")
    (main,) = template_of(one)["spec"]["containers"]
    return one["spec"]["replicas"], main["image"]


OWN = signing()
SIGNERS: Mapping[str, Mapping[str, Any]] = {
    "certificate": {"authorities": lambda: OWN, "issuer": None},
    "issued": {"authorities": None, "issuer": Issuer("Issuer", "cert-manager.io", "mine")},
    "": {"authorities": None, "issuer": None},
}
"""Who signs, by how the names of Secrets with certificates end."""


def secrets_of_old(service: OneService) -> list[str]:
    """The Secrets that advice says pods still have."""
    said = [one for one in service.raw["status"].get("advice", ()) if "does not renew" in one]
    return [one.partition("in the Secret ")[2].partition(",")[0] for one in said]


@pytest.mark.parametrize(
    ("before", "after"), [("certificate", "issued"), ("issued", "certificate"), ("certificate", "")]
)
def test_pods_that_keep_the_certificate_of_who_signed_before_are_told_of(
    before: str, after: str
) -> None:
    service = succeed(OneService(), **SIGNERS[before])
    service.rest(4)
    assert secrets_of_old(service) == []
    there = pods(service)
    succeed(service, **SIGNERS[after]).rest(2)
    assert secrets_of_old(service) == [f"chat-{role}-{before}" for role in Role]
    service.edit(lambda spec: spec["target"].update(cache={"size": "1Gi"}))
    service.rest(2)
    assert secrets_of_old(service) == [f"chat-draft-{before}"]
    service.replace_pods()
    service.rest(4)
    assert secrets_of_old(service) == []
    assert not set(there) & set(pods(service))


def test_groups_that_keep_the_certificate_of_who_signed_before_are_told_of() -> None:
    service = succeed(OneService(spec=GROUPS), **SIGNERS["certificate"])
    service.rest(4)
    succeed(service, **SIGNERS["issued"]).rest(2)
    assert secrets_of_old(service) == ["chat-target-certificate"]
    service.replace_pods()
    service.rest(8)
    assert secrets_of_old(service) == []


@pytest.mark.parametrize("after", ["certificate", "issued"])
def test_pods_without_certificates_keep_none(after: str) -> None:
    service = succeed(served(), **SIGNERS[after])
    service.rest(2)
    assert "nextRevision" in status(service)
    assert secrets_of_old(service) == []


@pytest.mark.parametrize("shape", ["single pods", "LeaderWorkerSet"])
def test_pods_of_every_shape_are_replaced_once_the_annotation_changes(shape: str) -> None:
    given = {} if shape == "single pods" else {"spec": GROUPS}
    service = served(**given)
    succeed(service).rest(4)
    before = pods(service)
    service.replace_pods()
    service.rest(8)
    assert not set(before) & set(pods(service))
    assert len(pods(service)) == len(before)
    notes = [pod["metadata"]["annotations"] for pod in service.cluster.of("Pod")]
    assert {one[RESTARTED_ANNOTATION] for one in notes} == {"1"}
    assert "nextRevision" not in status(service)
    assert service.condition("Progressing") == ("False", "Complete")
    after = pods(service)
    succeed(service, "worker:3").rest(4)
    assert pods(service) == after, "the annotation stays, and asks for nothing more"
    assert "nextRevision" in status(service)


def test_nothing_waits_any_more_as_soon_as_progressing_says_so() -> None:
    service = succeed(served())
    service.rest(2)
    service.replace_pods()
    assert "nextRevision" in status(service)
    service.pass_()
    assert "nextRevision" not in status(service)
    assert service.condition("Progressing") == ("True", "RollingOut")


def test_the_annotation_replaces_pods_where_nothing_waits_too() -> None:
    service = served()
    before = pods(service)
    service.replace_pods()
    service.rest(6)
    assert not set(before) & set(pods(service))
    assert service.writes_at_rest() == []


@pytest.mark.parametrize("dies_after", range(12))
def test_pods_are_replaced_once_wherever_the_operator_ends(dies_after: int) -> None:
    service = served()
    succeed(service).rest(2)
    service.replace_pods()
    service.restart(dies_after)
    service.pass_()
    service.restart()
    service.rest(4)
    assert images(service) == {"target": "worker:2", "draft": "worker:2"}
    assert service.writes_at_rest() == []


def test_the_status_names_the_command_that_replaces_pods() -> None:
    command = (
        "kubectl annotate speculativeservice chat -n default"
        " outrider.dev/restarted-at=$(date -Iseconds) --overwrite"
    )
    service = succeed(served())
    service.rest(2)
    conditions = service.raw["status"]["conditions"]
    (words,) = (one["message"] for one in conditions if one["type"] == "Progressing")
    assert words.endswith(f"this version of the operator would make other pods: {command}")
    said = [note for reason, note in service.cluster.events if reason == "UpgradeWaits"]
    assert [note.endswith(command) for note in said] == [True, True]
    service.replace_pods()
    service.rest(4)
    conditions = service.raw["status"]["conditions"]
    (words,) = (one["message"] for one in conditions if one["type"] == "Progressing")
    assert "annotate" not in words


def test_fields_of_a_newer_definition_are_ignored_and_told() -> None:
    service = served()
    before = pods(service)
    service.edit(lambda spec: spec["target"].update(newer={"a": [1]}))
    service.rest(2)
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("Degraded") == ("False", "AsExpected")
    words = "spec.target.newer: this version of the operator does not know the field and ignores it"
    assert words in service.raw["status"]["advice"]
    assert ("Advice", words) in service.cluster.events
    assert pods(service) == before
    service.edit(lambda spec: spec["target"].pop("newer"))
    service.rest(2)
    assert words not in service.raw["status"].get("advice", ())


PINS: Mapping[str, tuple[Pin, bool]] = {
    "of a new service": (Pin("", "", False), False),
    "as it was wanted": (Pin("new", "", True), False),
    "of the same generation": (Pin("old", "", True), True),
    "of another generation": (Pin("old", "", False), False),
    "that waited before an edit": (Pin("old", "new", False), True),
    "unlike what waited before an edit": (Pin("old", "other", False), False),
    "unlike what waited, without an edit": (Pin("old", "other", True), True),
}


@pytest.mark.parametrize(("pin", "holds"), PINS.values(), ids=list(PINS))
def test_a_template_is_held_back_where_no_edit_asks_for_it(pin: Pin, holds: bool) -> None:
    assert pin.holds("new") is holds


def test_what_could_not_be_read_was_not_carried_out() -> None:
    service = served()
    service.edit(lambda spec: spec["target"].update(image="", cache={"size": "1Gi"}))
    service.rest(2)
    assert service.condition("Degraded") == ("True", "InvalidSpec")
    assert service.raw["status"]["observedGeneration"] == service.raw["metadata"]["generation"]
    assert not Pin.of(service.raw, Role.TARGET).is_of_generation
