"""A pass may end after any of its actions: later ones end in the same objects, and then in rest."""

import copy
import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cli.service.rules import check_rules
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import ObjectKind
from outrider.operator.naming import DIGEST_ANNOTATION, MANAGED_BY
from outrider.operator.spec import SpecError, load_document
from tests.unit.operator.one_service import KEY, SPEC, OneService
from tests.unit.operator.small_controllers import CONTROLLERS_OWN

Spec = dict[str, Any]
Change = Callable[[Spec], Any]


def changed(*path: str, to: Any) -> Change:
    """Set a field of a spec; None: remove it."""

    def change(spec: Spec) -> None:
        for key in path[:-1]:
            spec = spec.setdefault(key, {})
        if to is None:
            spec.pop(path[-1], None)
        else:
            spec[path[-1]] = copy.deepcopy(to)

    return change


def draft(spec: Spec) -> None:
    spec["draft"] = yaml.safe_load(SPEC)["draft"]


def if_allowed(change: Change) -> Change:
    """Make a change where the description then keeps the rules; leave it as it is where not."""

    def made(spec: Spec) -> None:
        after = copy.deepcopy(spec)
        change(after)
        head = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
        try:
            check_rules(load_document({**head, "metadata": {"name": "chat"}, "spec": after}))
        except SpecError:
            return
        spec.clear()
        spec.update(after)

    return made


EDITS: dict[str, Change] = {
    "two targets": changed("target", "replicas", to=2),
    "one target": changed("target", "replicas", to=1),
    "another image": changed("target", "image", to="worker:2"),
    "another model": changed("target", "model", "uri", to="hf://org/larger"),
    "more memory": changed("target", "resources", to={"limits": {"memory": "4096Mi", "cpu": 3}}),
    "a claim": changed("target", "cache", to={"type": "PersistentVolumeClaim", "size": "2048Mi"}),
    "no claim": changed("target", "cache", to=None),
    "a node": changed("target", "podTemplate", to={"spec": {"nodeSelector": {"a": "b"}}}),
    "any node": changed("target", "podTemplate", to=None),
    "open to all": changed("networkPolicy", to={"mode": "Disabled"}),
    "closed again": changed("networkPolicy", to=None),
    "always a budget": changed("podDisruptionBudget", to={"mode": "Enabled"}),
    "no budget": changed("podDisruptionBudget", to={"mode": "Disabled"}),
    "unwatched": changed("monitoring", to={"mode": "Disabled"}),
    "watched": changed("monitoring", to=None),
    "fewer rows": changed("speculation", to={"maxRows": 4}),
    "colocated": changed("draft", to={"model": {"uri": "hf://o/s"}, "placement": "Colocated"}),
    "same pod": changed("draft", to={"model": {"uri": "hf://o/s"}, "placement": "SamePod"}),
    "no draft": changed("draft", to=None),
    "a draft": draft,
    "two machines": changed("target", "parallelism", to={"tensor": 4, "nodes": 2}),
    "four machines": changed("target", "parallelism", to={"tensor": 4, "nodes": 4}),
    "one machine": changed("target", "parallelism", to=None),
    "recreated": changed("target", "update", to={"strategy": "Recreate"}),
    "one by one": changed("target", "update", to={"maxSurge": 0, "maxUnavailable": 1}),
    "surging": changed("target", "update", to=None),
    "drafts on two machines": lambda spec: (
        changed("draft", "parallelism", to={"tensor": 2, "nodes": 2})(spec)
        if "draft" in spec
        else None
    ),
    "suspended": changed("suspend", to="Suspended"),
    "running": changed("suspend", to=None),
}
CHANGES = {name: if_allowed(change) for name, change in EDITS.items()}


def spec_after(names: list[str]) -> Spec:
    spec: Spec = yaml.safe_load(SPEC)
    spec["target"]["replicas"] = 1  # left out, it is left as it was
    for name in names:
        CHANGES[name](spec)
    return spec


@functools.cache
def outcome_of(spec: str, kinds: frozenset[ObjectKind]) -> dict[tuple[str, str], Any]:
    """Return the outcome of a service that was never edited."""
    fresh = OneService(json.loads(spec), kinds)
    fresh.rest()
    return fresh.outcome()


def expected(service: OneService) -> dict[tuple[str, str], Any]:
    return outcome_of(json.dumps(service.raw["spec"], sort_keys=True), service.optional_kinds)


def test_a_service_at_rest_is_not_written() -> None:
    service = OneService()
    service.rest()
    assert service.condition("SpeculationActive") == ("True", "Active")
    assert service.writes_at_rest() == []


def test_a_new_process_writes_only_what_the_server_writes_its_own_way() -> None:
    service = OneService()
    service.rest()
    service.restart()
    deployments = {"apply Deployment chat-target", "apply Deployment chat-draft"}
    assert set(service.writes_at_rest()) <= deployments
    assert service.writes_at_rest() == []


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["no draft"],
        ["suspended"],
        ["a claim", "two targets", "a node"],
        ["two targets", "two machines", "recreated"],
        ["same pod"],
    ],
    ids=lambda names: " and ".join(names) or "new",
)
def test_a_process_that_dies_after_any_action_changes_nothing_in_the_end(names: list[str]) -> None:
    edited = OneService(spec_after([]))
    if names:
        edited.rest()
        for name in names:
            edited.edit(CHANGES[name])
    for dies_after in itertools.count(step=2):
        service = edited.copy()
        service.restart(dies_after)
        survived = service.pass_()
        service.restart()
        service.rest(8)
        assert service.outcome() == expected(service), dies_after
        assert service.writes_at_rest() == [], dies_after
        if survived:
            break
    assert dies_after > 1


def overwritten(live: Object) -> None:
    """Change every field of a child, as another client."""
    live["metadata"]["annotations"] = {DIGEST_ANNOTATION: "changed"}
    for key in live.get("data", {}):
        live["data"][key] = "{}"
    if live["kind"] == "Deployment":
        live["spec"]["template"]["spec"]["containers"][0]["image"] = "worker:0"
        live["spec"]["template"]["spec"].pop("volumes", None)
    if live["kind"] == "LeaderWorkerSet":
        live["spec"]["leaderWorkerTemplate"]["size"] = 7
    if live["kind"] == "Service":
        live["spec"]["ports"] = []
    if live["kind"] == "NetworkPolicy":
        live["spec"]["ingress"] = [{}]


def hidden(live: Object) -> None:
    """Remove the label by which the operator finds its objects, as another client."""
    live["metadata"]["labels"][MANAGED_BY] = "you"


@pytest.mark.parametrize("how", [None, overwritten, hidden])
def test_every_child_is_repaired(how: Callable[[Object], None] | None) -> None:
    service = OneService(spec_after(["a claim", "always a budget", "two machines"]))
    service.rest()
    before = service.outcome()
    kinds = set()
    for key in [
        key
        for key in service.cluster.stored
        if key[0] not in (*CONTROLLERS_OWN, service.raw["kind"])
    ]:
        kinds.add(key[0])
        if how is None:
            service.cluster.remove(key)
        else:
            service.cluster.edit(key, how)
        service.rest(3)
        assert service.outcome() == before, key
    assert len(kinds) == 9


def test_a_field_that_is_no_longer_wanted_goes() -> None:
    service = OneService(spec_after(["a node"]))
    service.rest()
    service.edit(CHANGES["any node"])
    service.rest()
    (target,) = [d for d in service.cluster.of("Deployment") if "target" in d["metadata"]["name"]]
    assert "nodeSelector" not in target["spec"]["template"]["spec"]


def test_settings_stay_while_a_pod_may_start_from_them() -> None:
    service = OneService()
    service.rest()
    (old,) = [c for c in service.cluster.of("ConfigMap") if "-target-" in c["metadata"]["name"]]
    service.edit(CHANGES["another model"])
    service.pass_()
    service.pass_()
    names = {c["metadata"]["name"] for c in service.cluster.of("ConfigMap")}
    assert old["metadata"]["name"] in names
    service.rest()
    names = {c["metadata"]["name"] for c in service.cluster.of("ConfigMap")}
    assert old["metadata"]["name"] not in names


OPERATIONS = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from(sorted(CHANGES))),
    st.tuples(st.just("remove"), st.integers(0, 30)),
    st.tuples(st.just("overwrite"), st.integers(0, 30)),
    st.tuples(st.just("die"), st.integers(0, 20)),
    st.tuples(st.just("pass"), st.booleans()),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 16.0, 100.0])),
)


@settings(deadline=None, max_examples=4)
@given(st.lists(OPERATIONS, max_size=12))
def test_any_history_ends_in_what_the_description_says(history: list[tuple[str, Any]]) -> None:
    service = OneService(spec_after([]))
    for operation, value in history:
        happen(service, operation, value)
    service.restart()
    service.controllers.ready = lambda role: True
    service.rest(40)  # a probe that is under way takes its time
    assert service.outcome() == expected(service)
    assert service.writes_at_rest() == []


def happen(service: OneService, operation: str, value: Any) -> None:
    """One thing that may happen."""
    children = [key for key in service.cluster.stored if key[0] not in ("Pod", service.raw["kind"])]
    match operation:
        case "edit":
            service.edit(CHANGES[value])
        case "remove" if children:
            service.cluster.remove(children[value % len(children)])
        case "overwrite" if children:
            service.cluster.edit(children[value % len(children)], overwritten)
        case "die":
            service.restart(value)
            if not service.pass_():
                service.restart()
        case "pass":
            service.pass_(lagging=value)
        case "settle":
            service.controllers.ready = lambda role: bool(value)
            service.controllers.settle()
        case "wait":
            service.now += value


def test_nothing_is_written_once_the_service_is_gone() -> None:
    service = OneService()
    service.rest()
    service.cluster.remove(("SpeculativeService", *KEY))
    service.controllers.settle()
    service.cluster.writes.clear()
    service.pass_()
    assert service.cluster.writes == []
    assert not service.cluster.stored, "nothing is left behind"


@pytest.mark.parametrize("mode", ["Static", "External"])
def test_a_scale_of_targets_rolls_no_draft(mode: str) -> None:
    spec = spec_after([])
    if mode == "External":
        del spec["target"]["replicas"]
        spec["target"]["scaling"] = {"mode": mode, "maxReplicas": 3}
    service = OneService(spec)
    service.rest()
    (before,) = service.cluster.of("Pod")[:1]
    assert before["metadata"]["labels"]["outrider.dev/role"] == "draft"
    if mode == "Static":
        service.edit(CHANGES["two targets"])
    else:
        scaler = ("SpeculativeRoleScaler", *KEY[:1], "chat-target")
        service.cluster.edit(scaler, lambda body: body["spec"].update(replicas=2))
    service.rest()
    pods = service.cluster.of("Pod")
    assert len(pods) == 3
    assert pods[0]["metadata"]["uid"] == before["metadata"]["uid"]
