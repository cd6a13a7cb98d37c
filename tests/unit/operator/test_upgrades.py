"""Operators of other versions: no pod goes unasked, edits are carried out, turns are kept."""

import asyncio
import copy
import datetime
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client import generate_latest

from outrider.contract.settings import Role
from outrider.operator import waves
from outrider.operator.certificates.authority import Authorities
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.interfaces import Object
from outrider.operator.manifests.pins import Pin, settings_of, template_of
from outrider.operator.naming import SERVICE_LABEL, UPGRADE_KEY, labels
from outrider.operator.work_queue import Retry
from tests.unit.operator.one_service import KEY, START, OneService
from tests.unit.operator.small_leases import SmallLeases

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
    service.edit(lambda spec: spec["target"].update(sharedMemorySize="1Gi"))
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
    service.edit(lambda spec: spec["target"].update(sharedMemorySize="1Gi"))
    service.restart(dies_after)
    service.pass_()
    succeed(service, "worker:3").rest(3)
    assert images(service)["target"] in ("worker:2", "worker:3")
    template = service.cluster.of("Deployment")[1]["spec"]["template"]
    assert {"medium": "Memory", "sizeLimit": "1Gi"} in [
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
    succeed(service, max_upgrades=1).rest(8)
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
    service.edit(lambda spec: spec["target"].update(sharedMemorySize="1Gi"))
    service.rest(2)
    assert secrets_of_old(service) == [f"chat-draft-{before}"]
    service.edit(lambda spec: spec.update(upgrade="AtOnce"))
    service.rest(4)
    assert secrets_of_old(service) == []
    assert not set(there) & set(pods(service))


def test_groups_that_keep_the_certificate_of_who_signed_before_are_told_of() -> None:
    service = succeed(OneService(spec=GROUPS), **SIGNERS["certificate"])
    service.rest(4)
    succeed(service, **SIGNERS["issued"]).rest(2)
    assert secrets_of_old(service) == ["chat-target-certificate"]
    succeed(service, max_upgrades=1).rest(8)
    assert secrets_of_old(service) == []


@pytest.mark.parametrize("after", ["certificate", "issued"])
def test_pods_without_certificates_keep_none(after: str) -> None:
    service = succeed(served(), **SIGNERS[after])
    service.rest(2)
    assert "nextRevision" in status(service)
    assert secrets_of_old(service) == []


class Fleet(OneService):
    """Several services of one operator."""

    def __init__(self, *names: str, namespaces: Mapping[str, str] = MappingProxyType({})) -> None:
        """`namespaces` of services that are elsewhere than the first, by name."""
        super().__init__()
        self.names = ("chat", *names)
        self.namespaces = namespaces
        for name in names:
            body = copy.deepcopy(self.raw)
            meta = {"name": name, "namespace": self.key(name)[0]}
            kind = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
            self.cluster.put({**kind, "metadata": meta, "spec": body["spec"]})
        self.woken: list[ServiceKey] = []
        self.restart()

    def restart(self, dies_after: int | None = None) -> None:
        super().restart(dies_after)
        self.reconciler.on_turn(lambda key: self.woken.append(key))

    def key(self, name: str) -> ServiceKey:
        return self.namespaces.get(name, KEY[0]), name

    async def _pass(self) -> None:
        for key in map(self.key, self.names):
            await self.reconciler.prepare(key)
            try:
                await self.reconciler.reconcile(key)
            except Retry as retry:
                self.retries.append(retry)

    def change(self, name: str, **spec: Any) -> None:
        self.cluster.edit(
            ("SpeculativeService", KEY[0], name), lambda body: body["spec"].update(spec)
        )

    @property
    def new(self) -> list[str]:
        """The services whose targets' template is the new operator's."""
        return [name for name in self.names if images(self, name)["target"] == "worker:2"]


def fleet(*names: str) -> Fleet:
    found = Fleet(*names)
    found.rest(4)
    return found


def marks(services: Fleet) -> list[str]:
    """The ConfigMaps that say that it is their service's turn."""
    maps = services.cluster.of("ConfigMap")
    return [one["metadata"]["name"] for one in maps if UPGRADE_KEY in one["data"]]


def under_way(*names: str) -> tuple[Fleet, str]:
    """Services of which one has its turn and the others wait, and the name of that one."""
    services = fleet(*names)
    succeed(services, max_upgrades=1)
    services.controllers.ready = lambda role: role != Role.TARGET
    services.rest(2)
    services.controllers.ready = lambda role: True
    (first,) = services.new
    services.woken.clear()
    return services, first


def orphan(services: Fleet, name: str) -> None:
    """What a service owned stays without it, as `kubectl delete --cascade=orphan` leaves it."""
    for stored in services.cluster.stored.values():
        meta = stored.body["metadata"]
        if meta.get("labels", {}).get(SERVICE_LABEL) == name and stored.body["kind"] != "Pod":
            meta.pop("ownerReferences", None)


def test_services_take_turns_and_the_next_waits_until_the_one_before_is_available() -> None:
    services = fleet("code", "mail")
    succeed(services, max_upgrades=1)
    services.controllers.ready = lambda role: role != Role.TARGET
    services.rest(6)
    assert len(services.new) == 1
    services.controllers.ready = lambda role: True
    seen = []
    for _ in range(6):
        services.controllers.settle()
        services.now += 16
        services.pass_()
        seen.append(len(services.new))
    assert seen[-1] == len(services.names)
    assert max(b - a for a, b in zip([1, *seen], seen, strict=False)) == 1
    assert services.woken, "the next is woken"


def test_another_leader_goes_on_with_the_same_services() -> None:
    services = fleet("code", "mail", "news")
    succeed(services, max_upgrades=2)
    for _ in range(3):  # no controller carries out what is begun
        services.pass_()
    before = services.new
    assert len(before) == 2
    services.names = tuple(reversed(services.names))  # those that wait come first
    services.restart()
    for _ in range(3):
        services.pass_()
    assert sorted(services.new) == before


def in_two_namespaces() -> Fleet:
    """A service in a namespace each, of which the first has its turn; those that wait come first
    from now on."""
    services = Fleet("mail", namespaces={"mail": "other"})
    services.rest(4)
    succeed(services, max_upgrades=1).pass_()
    assert services.new == ["chat"]
    services.names = ("mail", "chat")
    services.woken.clear()
    return services


def test_another_leader_counts_turns_in_namespaces_that_it_has_not_looked_at() -> None:
    services = in_two_namespaces()
    succeed(services, claims=SmallLeases().operator("a/one"))
    for _ in range(3):
        services.pass_()
    assert services.new == ["chat"]


def test_a_turn_that_another_operator_gave_keeps_nobody_waiting() -> None:
    services, leases = in_two_namespaces(), SmallLeases()
    asyncio.run(leases.operator("b/two").claim(KEY[0]))
    succeed(services, claims=leases.operator("a/one")).pass_()
    assert services.woken == [("other", "mail")], "once it is known whose the other one is"
    services.pass_()
    assert services.new == ["mail", "chat"]


def test_a_service_that_is_not_at_rest_keeps_the_turn_from_nobody() -> None:
    services = fleet("code")
    services.cluster.edit(
        ("SpeculativeService", KEY[0], "code"), lambda body: body["spec"].pop("draft")
    )
    services.controllers.ready = lambda role: role != Role.DRAFT
    services.rest(2)
    succeed(services, max_upgrades=1).rest(4)
    assert services.new == ["code"]
    services.controllers.ready = lambda role: True
    services.rest(4)
    assert services.new == ["chat", "code"]


def test_a_service_may_ask_for_itself_and_may_keep_what_it_has() -> None:
    services = fleet("code", "mail")
    services.change("code", upgrade="AtOnce")
    services.change("mail", upgrade="OnEdit")
    services.rest(2)
    succeed(services).rest(4)
    assert services.new == ["code"]
    succeed(services, max_upgrades=2).rest(4)
    assert services.new == ["chat", "code"]


def test_while_paused_nothing_begins_and_what_is_under_way_goes_on() -> None:
    services = fleet("code", "mail")
    services.change("mail", upgrade="AtOnce")
    services.rest(2)
    succeed(services, max_upgrades=1, upgrades_paused=True).rest(4)
    assert services.new == []
    succeed(services, upgrades_paused=False)
    services.change("mail", upgrade="InTurn")
    services.controllers.ready = lambda role: role != Role.TARGET
    services.rest(2)
    (first,) = services.new
    succeed(services, upgrades_paused=True)
    services.controllers.ready = lambda role: True
    services.rest(6)
    assert services.new == [first]
    assert images(services, first) == {"target": "worker:2", "draft": "worker:2"}
    assert marks(services) == []


@pytest.mark.parametrize(
    ("exists", "name", "owner", "turn"),
    [
        (True, "mail-intent", "mail", True),
        (True, "mail-intent", "code", False),
        (True, "mail-intent", "", False),
        (True, "mail-other", "mail", False),
        (False, "mail-intent", "code", False),
        (False, "mail-intent", "", False),
    ],
)
def test_only_the_own_intent_of_a_service_takes_a_turn(
    exists: bool, name: str, owner: str, turn: bool
) -> None:
    services = fleet("code")
    if exists:  # and no pass has been over it
        body = copy.deepcopy(services.raw)
        body["metadata"] = {"name": "mail", "namespace": KEY[0]}
        services.cluster.put(body)
    meta: Object = {"name": name, "namespace": KEY[0], "labels": labels("mail")}
    if owner:
        kept = services.cluster.stored["SpeculativeService", KEY[0], owner].body["metadata"]
        meta["ownerReferences"] = [{"uid": kept["uid"]}]
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    services.cluster.put({**kind, "metadata": meta, "data": {UPGRADE_KEY: "true"}})
    succeed(services, max_upgrades=1).rest(6)
    assert services.new == ([] if turn else ["chat", "code"])


@pytest.mark.parametrize("orphans", [False, True])
def test_a_service_that_is_deleted_in_its_turn_makes_room(orphans: bool) -> None:
    services, first = under_way("code")
    (other,) = set(services.names) - {first}
    services.cluster.remove(("SpeculativeService", KEY[0], first))
    if orphans:
        orphan(services, first)
    services.pass_()
    assert services.woken == [(KEY[0], other)]
    services.names = (other,)
    services.rest(4)
    assert services.new == [other]
    assert marks(services) == ([f"{first}-intent"] if orphans else [])


def test_a_service_that_cannot_be_read_in_its_turn_goes_on_afterwards() -> None:
    services, first = under_way("code")
    services.change(first, suspend="Perhaps")
    services.rest(6)
    assert services.new == ["chat", "code"]
    assert marks(services) == [f"{first}-intent"], "its turn is not forgotten"
    services.change(first, suspend="Running")
    services.rest(4)
    assert marks(services) == []


def test_a_turn_that_ends_wakes_all_that_wait() -> None:
    services, first = under_way("code", "mail", "news")
    services.change("news", upgrade="OnEdit")
    services.pass_()
    services.woken.clear()
    services.controllers.settle()
    services.pass_()
    assert set(services.woken) == {(KEY[0], name) for name in ("chat", "code", "mail")} - {
        (KEY[0], first)
    }


def test_the_log_says_once_for_whom_services_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=waves.__name__)
    _, first = under_way("code", "mail")
    said = [one.getMessage() for one in caplog.records if one.name == waves.__name__]
    assert said == [f"upgrades wait for {KEY[0]}/{first} (at most 1 at once)"]


def test_a_service_that_keeps_its_pods_until_an_edit_waits_for_no_turn() -> None:
    services = fleet("code", "mail")
    services.change("mail", upgrade="OnEdit")
    services.rest(2)
    succeed(services).rest(2)
    text = generate_latest(services.metrics.registry).decode()
    assert 'outrider_operator_upgrades{state="waiting"} 2.0' in text


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
    service.edit(lambda spec: spec["target"].update(image="", sharedMemorySize="1Gi"))
    service.rest(2)
    assert service.condition("Degraded") == ("True", "InvalidSpec")
    assert service.raw["status"]["observedGeneration"] == service.raw["metadata"]["generation"]
    assert not Pin.of(service.raw, Role.TARGET).is_of_generation
