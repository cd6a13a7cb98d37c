"""One pass: its order, the objects that it leaves alone, its reports of refusals."""

import copy
import datetime
import itertools
import logging
from typing import Any

import pytest
import yaml

from outrider.operator.certificates.authority import LIFE, Authorities
from outrider.operator.cluster.client import INVALID, ClusterError
from outrider.operator.cluster.interfaces import Object
from outrider.operator.control.reasons import PhaseChange
from outrider.operator.naming import DELETION_COST, MANAGED_BY, PROBE_ANNOTATION
from tests.unit.operator.one_service import KEY, SPEC, START, OneService


def forbidding(kind: str, status: int = 403) -> Any:
    """Make the cluster refuse writes of a kind."""

    def refuse(verb: str, of: str) -> ClusterError | None:
        refused = of == kind and verb in ("apply", "event")
        return ClusterError(f"{verb} {of}", status, f"{of} is not yours") if refused else None

    return refuse


def test_the_intent_is_stored_before_any_workload_and_any_push() -> None:
    service = OneService()
    service.pass_()
    writes = service.cluster.writes
    intent = writes.index("apply ConfigMap chat-intent")
    assert intent < writes.index("apply Deployment chat-target")
    assert writes[-1] == "status SpeculativeService chat"
    service.controllers.settle()
    service.cluster.refuse = forbidding("ConfigMap")
    service.now += 16
    service.pass_()
    assert service.workers.pushed == [], "the drafts are there, and it is not stored that they are"
    service.cluster.refuse = lambda verb, kind: None
    service.now += 2
    service.pass_()
    assert len(service.workers.pushed) == 1


def test_a_refused_object_is_said_and_keeps_nothing_else_from_being_made() -> None:
    service = OneService()
    service.cluster.refuse = forbidding("NetworkPolicy")
    service.rest(4)
    assert service.condition("Degraded") == ("True", "Forbidden")
    assert service.condition("Ready") == ("True", "Serving")
    assert service.workers.pushed, "the policy is told all the same"
    assert service.cluster.of("NetworkPolicy") == []
    service.cluster.refuse = lambda verb, kind: None
    service.rest(2)
    assert len(service.cluster.of("NetworkPolicy")) == 2
    assert service.condition("Degraded") == ("False", "AsExpected")


def test_old_pods_stay_while_there_is_no_room_for_the_settings_of_new_ones() -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(update={"strategy": "Recreate"}))
    service.rest(4)
    (pod,) = (one for one in service.cluster.of("Pod") if "target" in one["metadata"]["name"])
    change = {"image": "worker:2", "engine": {"maxContext": 1024}}
    service.edit(lambda spec: spec["target"].update(change))
    service.cluster.refuse = forbidding("ConfigMap")
    service.rest(2)
    assert pod in service.cluster.of("Pod")
    (degraded,) = (c for c in service.raw["status"]["conditions"] if c["type"] == "Degraded")
    assert "what needs it stays as it is: Deployment chat-target" in degraded["message"]
    service.cluster.refuse = lambda verb, kind: None
    service.rest(4)
    assert pod not in service.cluster.of("Pod")
    assert service.condition("Degraded") == ("False", "AsExpected")


def stranger(service: OneService, **metadata: Any) -> Object:
    """Somebody's pod with the labels of a target, ready and with an address."""
    (target,) = (one for one in service.cluster.of("Pod") if "target" in one["metadata"]["name"])
    meta = {"name": "stranger", "namespace": KEY[0], "labels": target["metadata"]["labels"]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, **metadata}}
    made = service.cluster.put(body)
    service.cluster.put_status(made, {**copy.deepcopy(target["status"]), "podIP": "10.9.9.9"})
    return made


def test_a_pod_that_carries_the_labels_is_neither_asked_nor_counted_nor_told() -> None:
    service = OneService()
    service.rest(6)
    before = copy.deepcopy(service.raw["status"])
    made = stranger(service)
    service.rest(6)
    service.edit(lambda spec: spec.update(speculation={"maxRows": 3}))
    service.rest(6)
    uid = made["metadata"]["uid"]
    assert uid not in service.workers.policies
    assert uid not in service.workers.asked
    assert service.raw["status"]["target"] == before["target"]
    assert service.policy["max_rows"] <= 3


def test_an_unreadable_controller_leaves_everything_as_it_is() -> None:
    service = OneService()
    service.rest(6)
    before = copy.deepcopy(service.raw["status"])
    service.restart()
    unknown = ClusterError("get replicasets", 503, "later")
    service.cluster.refuse = lambda verb, kind: unknown if kind == "ReplicaSet" else None
    service.cluster.writes.clear()
    service.rest(3)
    assert service.cluster.writes == []
    assert "nobody knows whose the pods are" in str(service.retries[-1])
    service.cluster.refuse = lambda verb, kind: None
    service.rest(3)
    assert service.raw["status"]["target"] == before["target"]
    assert service.condition("Ready") == ("True", "Serving")


@pytest.mark.parametrize("name", ["a/status", "somebodys"])
def test_a_strangers_unreadable_controller_holds_no_service_up(name: str) -> None:
    service = OneService()
    service.rest(6)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "x"}
    stranger(service, ownerReferences=[{**owner, "controller": True}])
    refused = ClusterError("get replicasets", 403, "no")
    service.cluster.refuse = lambda verb, kind: refused if kind == "ReplicaSet" else None
    service.edit(lambda spec: spec.update(speculation={"maxRows": 3}))
    service.retries.clear()
    service.rest(6)
    assert service.retries == []
    assert service.policy["max_rows"] <= 3
    assert service.condition("Ready") == ("True", "Serving")


def test_whose_pods_are_is_read_once() -> None:
    service, reads = OneService(), list[str]()
    service.rest(6)
    service.cluster.refuse = lambda verb, kind: reads.append(kind) if verb == "get" else None
    service.rest(6)
    assert reads == []
    service.restart()
    service.rest(6)
    assert reads == ["ReplicaSet", "ReplicaSet"], "the target's and the draft's"


def decided(events: list[tuple[str, str]]) -> list[str]:
    return [reason for reason, _ in events if reason in list(PhaseChange)]


def test_a_decision_that_cannot_be_stored_is_neither_done_nor_said() -> None:
    service = OneService()
    service.rest(4)
    before, said = copy.deepcopy(service.cluster.of("Deployment")), len(service.cluster.events)
    service.edit(lambda spec: spec.update(speculation={"mode": "Disabled"}))
    service.cluster.refuse = forbidding("ConfigMap")
    service.rest(20)
    assert service.cluster.of("Deployment") == before
    assert not decided(service.cluster.events[said:])
    service.cluster.refuse = lambda verb, kind: None
    service.rest(20)
    assert decided(service.cluster.events[said:])


def test_nothing_is_deleted_while_something_cannot_be_made() -> None:
    service = OneService()
    service.rest(4)
    service.edit(lambda spec: spec["target"]["model"].update(uri="hf://org/other"))
    service.edit(lambda spec: spec.pop("draft"))
    service.cluster.refuse = forbidding("Deployment", 422)
    service.pass_()
    assert len(service.cluster.of("Deployment")) == 2
    service.cluster.refuse = lambda verb, kind: None
    service.rest(2)
    assert len(service.cluster.of("Deployment")) == 1


@pytest.mark.parametrize("status", [0, 409, 429, 500, 503])
def test_an_object_at_which_the_server_fails_stops_nothing_else_and_is_said_the_second_time(
    status: int,
) -> None:
    service = OneService()
    service.cluster.refuse = forbidding("Service", status)
    service.pass_()
    assert len(service.cluster.of("Deployment")) == 2
    assert service.condition("Degraded") == ("False", "AsExpected"), "once may be chance"
    assert "Service is not yours" in str(service.retries[0])
    assert service.metrics.errors.labels("default", "ClusterError")._value.get() > 0
    service.rest(3)
    assert service.condition("Degraded") == ("True", "ApplyFailed")
    (degraded,) = (c for c in service.raw["status"]["conditions"] if c["type"] == "Degraded")
    assert "Service chat: Service is not yours" in degraded["message"]
    assert service.workers.pushed, "targets are told of their drafts all the same"
    assert "ApplyFailed" in [reason for reason, _ in service.cluster.events]
    service.cluster.refuse = lambda verb, kind: None
    service.pass_()
    tried = len(service.retries)
    service.rest(2)
    assert service.condition("Degraded") == ("False", "AsExpected")
    assert len(service.retries) == tried


def test_an_object_at_which_the_server_fails_slows_no_control_loop() -> None:
    service, tries = OneService(), list[float]()

    def refuse(verb: str, kind: str) -> ClusterError | None:
        if (verb, kind) != ("apply", "Service"):
            return None
        tries.append(service.now)
        return ClusterError("apply", 429, "too many requests", retry_after=40.0)

    service.rest(4)
    interval = 15.0
    lost = [key for key in service.cluster.stored if key[0] == "Service"]
    for key in lost:
        service.cluster.remove(key)
    service.cluster.refuse = refuse
    service.rest(5)
    first, again = [0.0] * len(lost), [48.0] * len(lost)
    assert [at - tries[0] for at in tries] == first + again, "as the server asked for"
    assert [retry.after for retry in service.retries] == [0.0, 0.0], "it has no word in the rest"
    assert all(retry.wait <= interval for retry in service.retries)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.pass_()
    assert "worker:2" in str(service.cluster.of("Deployment")), "an edit waits for none of that"
    assert len(tries) == 2 * len(lost)


def test_words_that_change_with_each_try_are_not_written_each_time() -> None:
    service, tries = OneService(), itertools.count()

    def refuse(verb: str, kind: str) -> ClusterError | None:
        refused = (verb, kind) == ("apply", "Service")
        return ClusterError("apply", 0, f"reset by port {next(tries)}") if refused else None

    service.cluster.refuse = refuse
    service.rest(4)
    service.cluster.writes.clear()
    service.rest(3)
    assert "status SpeculativeService chat" not in service.cluster.writes


def test_a_field_that_does_not_exist_is_a_refusal_though_the_server_answers_500() -> None:
    service = OneService()
    service.rest(2)
    words = "failed to create typed patch object (default/chat-target; apps/v1, Kind=Deployment)"
    mistyped = ClusterError("apply", 500, f"{words}: .spec.nodeselector: field not declared")
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.cluster.refuse = lambda verb, kind: (
        mistyped if (verb, kind) == ("apply", "Deployment") else None
    )
    service.pass_()
    assert service.condition("Degraded") == ("True", "Forbidden")
    assert service.retries == [], "only an edit helps"


def test_a_status_that_cannot_be_written_keeps_no_policy_from_targets() -> None:
    service = OneService()
    service.cluster.refuse = lambda verb, kind: (
        ClusterError("status", 503, "later", retry_after=7.0) if verb == "status" else None
    )
    service.rest(4)
    assert service.workers.pushed
    assert {retry.after for retry in service.retries} == {7.0}


def test_a_decision_is_said_though_an_object_after_it_could_not_be_written() -> None:
    service = OneService()
    service.workers.gain = 0.9
    service.rest(4)
    service.cluster.refuse = lambda verb, kind: (
        ClusterError("apply", 503, "later") if (verb, kind) == ("apply", "Deployment") else None
    )
    service.rest(26)
    assert decided(service.cluster.events).count(PhaseChange.DRAFTING_OFF) == 1


def test_an_error_that_nobody_expected_is_said_the_second_time() -> None:
    service = OneService()
    service.rest(2)
    service.workers.reports = broken  # type: ignore[method-assign]
    for expected in ("False", "True"):
        with pytest.raises(ValueError, match="what is this"):
            service.pass_()
        assert service.condition("Degraded")[0] == expected
    assert service.condition("Degraded") == ("True", "OperatorFailed")
    del service.workers.reports  # type: ignore[method-assign]
    service.rest(2)
    assert service.condition("Degraded") == ("False", "AsExpected")


def broken(key: object) -> None:
    raise ValueError("what is this?")


def test_refused_events_are_logged_and_cost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    service = OneService()
    service.cluster.refuse = forbidding("SpeculativeService")
    with caplog.at_level(logging.WARNING):
        service.rest(4)
    assert service.condition("Ready") == ("True", "Serving")
    assert "SpeculativeService is not yours" in caplog.text


@pytest.mark.parametrize("labelled", [False, True])
def test_an_object_of_somebody_else_is_left_alone(labelled: bool) -> None:
    service = OneService()
    labels = {MANAGED_BY: "outrider-operator", "outrider.dev/service": "chat"} if labelled else {}
    meta = {"name": "chat", "namespace": "default", "labels": labels}
    spec = {"selector": {"mine": "yes"}, "ports": []}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    service.cluster.put(body)
    service.rest(3)
    assert service.condition("Degraded") == ("True", "ForeignObject")
    kept = service.cluster.stored["Service", "default", "chat"].body
    assert kept["spec"]["selector"] == {"mine": "yes"}
    assert "ownerReferences" not in kept["metadata"]
    assert service.condition("Ready") == ("True", "Serving")


def external() -> OneService:
    spec = yaml.safe_load(SPEC)
    spec["target"]["scaling"] = {"mode": "External", "minReplicas": 1, "maxReplicas": 3}
    return OneService(spec)


def replicas(service: OneService, role: str) -> int:
    number: int = service.cluster.stored["Deployment", "default", f"chat-{role}"].body["spec"][
        "replicas"
    ]
    return number


def scaled_by_hand(service: OneService, kind: str, name: str, number: int) -> None:
    def change(body: Object) -> None:
        body["spec"]["replicas"] = number

    service.cluster.edit((kind, "default", name), change, "an-autoscaler")


def test_an_autoscaler_s_number_is_followed_within_bounds_and_never_written() -> None:
    service = external()
    service.rest(4)
    scaler = service.cluster.stored["SpeculativeRoleScaler", "default", "chat-target"]
    assert scaler.body["spec"]["replicas"] == 1
    for wanted, run in ((2, 2), (9, 3), (0, 1)):
        scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", wanted)
        service.rest(2)
        assert replicas(service, "target") == run
        assert scaler.body["spec"]["replicas"] == wanted
    assert scaler.body["status"]["replicas"] == 1
    assert scaler.body["status"]["selector"] == (
        "outrider.dev/service=chat,outrider.dev/role=target"
    )


def test_a_deleted_scaler_comes_back_with_the_number_that_runs() -> None:
    service = external()
    service.rest(2)
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 3)
    service.rest(2)
    service.cluster.remove(("SpeculativeRoleScaler", "default", "chat-target"))
    service.rest(2)
    assert replicas(service, "target") == 3


def test_a_number_that_is_left_out_is_left_alone() -> None:
    service = OneService()
    service.rest(2)
    scaled_by_hand(service, "Deployment", "chat-target", 4)
    service.rest(2)
    assert replicas(service, "target") == 4


def test_a_number_that_is_no_longer_given_stays() -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(replicas=3))
    service.rest(2)
    service.edit(lambda spec: spec["target"].pop("replicas"))
    service.rest(2)
    assert replicas(service, "target") == 3
    scaled_by_hand(service, "Deployment", "chat-target", 2)
    service.rest(2)
    assert replicas(service, "target") == 2


def test_a_managed_draft_starts_with_its_number() -> None:
    service = OneService()
    service.edit(lambda spec: spec["draft"].update(replicas=3))
    service.rest(2)
    assert replicas(service, "draft") == 3


@pytest.mark.parametrize(("role", "own"), [("target", 2), ("draft", 1)])
def test_a_number_that_somebody_writes_again_after_a_repair_is_left_alone_and_said(
    role: str, own: int
) -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(replicas=2))
    service.rest()
    scaled_by_hand(service, "Deployment", f"chat-{role}", 3)
    service.rest(2)
    assert replicas(service, role) == own, "once may have been a slip"
    scaled_by_hand(service, "Deployment", f"chat-{role}", 3)
    service.rest(20)
    assert replicas(service, role) == 3
    assert service.condition("Degraded") == ("True", "ReplicasContested")
    told = [note for reason, note in service.cluster.events if reason == "ReplicasContested"]
    assert told == [f"'an-autoscaler' sets the {role}'s replicas, which are the operator's"]


@pytest.mark.parametrize("end", ["edit", "hour"])
@pytest.mark.parametrize(("role", "own"), [("target", 2), ("draft", 3)])
def test_a_number_that_was_left_alone_is_the_operator_s_again_after_an_edit_or_an_hour(
    role: str, own: int, end: str
) -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(replicas=2))
    service.rest()
    for _ in range(2):
        scaled_by_hand(service, "Deployment", f"chat-{role}", 3)
        service.rest(2)
    assert service.condition("Degraded") == ("True", "ReplicasContested")
    if end == "edit":
        service.edit(lambda spec: spec.update(topology={"policy": "None"}))
    else:
        service.now += 3600
    service.rest(3)
    assert service.condition("Degraded") == ("False", "AsExpected")
    assert replicas(service, role) == own, "the loop takes drafts over as it finds them"


def test_drafting_that_does_not_pay_gives_the_drafts_back() -> None:
    service = OneService()
    service.workers.gain = 0.9
    service.rest(40)
    assert replicas(service, "draft") == 0
    assert service.condition("DraftAvailable") == ("False", "ScaledToZero")
    assert service.condition("Ready") == ("True", "Serving")
    told = [reason for reason, _ in service.cluster.events]
    assert told.count("DraftingOff") == 1
    off = service.workers.policies.values()
    assert not any(policy.drafts_allowed for policy in off)
    assert all(policy.local_sources for policy in off)


@pytest.mark.parametrize("asked", [True, False], ids=["an annotation", "another draft"])
def test_what_is_asked_or_new_is_tried_at_once(asked: bool) -> None:
    service = OneService()
    service.workers.gain = 0.9
    service.rest(40)
    assert replicas(service, "draft") == 0
    if asked:
        given = {PROBE_ANNOTATION: "now"}
        key = ("SpeculativeService", *KEY)
        service.cluster.edit(key, lambda body: body["metadata"].update(annotations=given))
    else:
        service.edit(lambda spec: spec["draft"].update(model={"uri": "hf://org/better"}))
    service.rest(4)
    assert replicas(service, "draft") == 1
    service.rest(16)
    assert service.condition("SpeculationActive") == ("False", "LowGain")


def test_silence_holds_everything() -> None:
    service = OneService()
    service.rest()
    before = service.outcome()
    service.workers.silent = True
    service.rest(12)
    assert service.outcome() == before
    assert service.condition("MetricsAvailable")[0] == "False"
    assert service.condition("SpeculationActive") == ("True", "MetricsUnavailable")


def test_a_pass_that_follows_at_once_sees_what_was_just_written() -> None:
    service = OneService()
    service.workers.gain = 0.9
    service.rest(4)
    for _ in range(24):
        service.now += 16
        service.pass_()
        service.pass_(lagging=True)
        service.pass_(lagging=True)
        service.controllers.settle()
    told = [reason for reason, _ in service.cluster.events]
    assert told.count("DraftingOff") == 1
    assert len(set(service.workers.pushed)) == len(service.workers.pushed)


def test_a_description_that_cannot_be_read_leaves_the_pods() -> None:
    service = OneService()
    service.rest(4)
    service.edit(lambda spec: spec.update(suspend="Perhaps"))
    service.cluster.writes.clear()
    service.rest(3)
    assert service.cluster.writes == ["status SpeculativeService chat"]
    assert service.condition("Degraded") == ("True", "InvalidSpec")
    assert service.condition("Ready") == ("Unknown", "InvalidSpec")
    service.edit(lambda spec: spec.pop("suspend"))
    service.rest(3)
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("Degraded") == ("False", "AsExpected")


def test_advice_is_given_once_for_each_generation() -> None:
    service = OneService()
    service.edit(lambda spec: spec["draft"].pop("resources"))
    service.rest(4)
    assert [reason for reason, _ in service.cluster.events].count("Advice") == 1
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.rest(4)
    assert [reason for reason, _ in service.cluster.events].count("Advice") == 2


def test_connections_to_pods_that_are_gone_are_let_go() -> None:
    service = OneService()
    service.rest(3)
    pods = {pod["metadata"]["uid"] for pod in service.cluster.of("Pod")}
    assert not service.workers.forgotten & pods
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.edit(lambda spec: spec["draft"].update(image="worker:2"))
    service.rest(3)
    assert service.workers.forgotten >= pods
    left = {pod["metadata"]["uid"] for pod in service.cluster.of("Pod")}
    service.cluster.remove(("SpeculativeService", *KEY))
    service.pass_()
    assert service.workers.forgotten >= left


def test_the_pods_of_another_label_are_not_read() -> None:
    service = OneService()
    service.rest(2)
    meta = {**service.cluster.of("Pod")[0]["metadata"], "name": "router"}
    meta["labels"] = {**meta["labels"], "outrider.dev/role": "router"}
    service.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    service.rest(2)
    assert service.condition("Ready") == ("True", "Serving")


def test_a_target_that_takes_no_policy_is_said_once_and_again_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    service = OneService()
    service.workers.unacknowledged = True
    service.rest(6, seconds=1.0)
    refused = [one for one in caplog.messages if "did not take policy" in one]
    assert len(refused) == 1
    service.workers.unacknowledged = False
    service.rest(4, seconds=1.0)
    taken = [one for one in caplog.messages if "takes policies again" in one]
    assert len(taken) == 1
    assert len([one for one in caplog.messages if "did not take policy" in one]) == 1


def test_a_sentence_with_other_numbers_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "outrider.operator.status.report")
    service = OneService()
    service.workers.links_up = 0.0
    service.rest(100, seconds=1.0)
    waking = [one for one in caplog.messages if "drafts wake for" in one]
    assert 1 <= len(waking) <= 4
    service.workers.links_up = 1.0
    service.rest(10, seconds=1.0)
    assert any("drafting on" in one for one in caplog.messages)


@pytest.mark.parametrize("kind", ["SpeculativeRoleScaler", "SpeculativeService"])
def test_an_object_that_is_deleted_before_its_status_is_written_fails_no_pass(kind: str) -> None:
    service = external()
    service.rest(4)

    def gone(verb: str, of: str) -> ClusterError | None:
        refused = (verb, of) == ("status", kind)
        return ClusterError("status", 404, "not found") if refused else None

    service.cluster.refuse = gone
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 3)
    service.rest(4)
    assert replicas(service, "target") == 3


def test_what_is_known_of_a_service_s_objects_goes_with_it() -> None:
    service = OneService()
    service.rest(4)
    assert service.writes_at_rest() == []
    key = ("SpeculativeService", *KEY)
    gone = service.cluster.stored.pop(key)
    service.pass_()
    service.cluster.stored[key] = gone
    service.pass_()
    assert "apply Deployment chat-target" in service.cluster.writes, "the server writes cpu its way"


def templated() -> OneService:
    spec = yaml.safe_load(SPEC)
    spec["target"]["podTemplate"] = {"spec": {"nodeselector": {"disk": "fast"}}}
    return OneService(spec)


def test_a_pod_template_that_would_be_refused_is_found_before_anything_is_written() -> None:
    service = templated()
    refusal = ClusterError("dry run", 422, "spec.template.spec.nodeselector: unknown")
    seen: list[list[str]] = []

    def refuse(verb: str, kind: str) -> ClusterError | None:
        if verb != "dry run":
            return None
        seen.append(list(service.cluster.writes))
        return refusal

    service.cluster.refuse = refuse
    service.rest(3)
    assert seen[0] == []
    (deployment,) = service.cluster.of("Deployment")
    assert deployment["metadata"]["name"] == "chat-draft", "everything else is made"
    assert service.condition("Degraded") == ("True", "Forbidden")
    service.cluster.refuse = lambda verb, kind: None
    service.rest(3)
    assert len(service.cluster.of("Deployment")) == 2
    assert service.condition("Degraded") == ("False", "AsExpected")


def test_only_workloads_that_differ_and_whose_pods_a_user_describes_are_tried() -> None:
    service = templated()
    service.rest(4)
    assert service.cluster.dry_runs == ["chat-target"]


def test_a_server_that_cannot_try_a_workload_is_asked_again_and_the_workload_waits() -> None:
    service = templated()
    service.cluster.refuse = lambda verb, kind: (
        ClusterError(verb, 503, "later") if verb == "dry run" else None
    )
    service.rest(3)
    assert len(service.cluster.of("Deployment")) == 1
    assert service.condition("Degraded") == ("True", "ApplyFailed")
    assert service.retries


def three_targets() -> tuple[OneService, list[str]]:
    service = external()
    service.rest(4)
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 3)
    service.rest(4)
    pods = [pod["metadata"]["name"] for pod in service.cluster.of("Pod")]
    return service, [name for name in pods if "target" in name]


def costs(service: OneService) -> dict[str, str]:
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in service.cluster.of("Pod")}
    notes = {name: meta.get("annotations", {}).get(DELETION_COST) for name, meta in pods.items()}
    return {name: cost for name, cost in notes.items() if cost is not None}


def test_targets_are_ordered_by_their_requests_before_their_number_is_lowered() -> None:
    service, names = three_targets()
    assert not any(write.startswith("apply Pod ") for write in service.cluster.writes)
    service.workers.running = {names[0]: 5, names[2]: 1}
    service.rest(4)
    assert costs(service) == {}, "requests come and go, and nobody asks for an order"
    service.cluster.writes.clear()
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 1)
    service.pass_()
    assert costs(service) == {names[0]: "5", names[2]: "1"}
    writes = service.cluster.writes
    assert writes.index(f"apply Pod {names[2]}") < writes.index("apply Deployment chat-target")
    assert replicas(service, "target") == 1


def test_the_newest_requests_decide_the_order() -> None:
    service, names = three_targets()
    service.pass_()
    service.workers.running = {names[1]: 7}
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 2)
    service.pass_()  # at the time of the pass before
    assert costs(service) == {names[1]: "7"}


def test_targets_whose_order_cannot_be_written_go_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service, names = three_targets()
    service.workers.running = {names[0]: 5}
    service.cluster.refuse = forbidding("Pod")
    scaled_by_hand(service, "SpeculativeRoleScaler", "chat-target", 1)
    service.pass_()
    assert replicas(service, "target") == 1
    assert any("targets go in any order: apply Pod: Pod is not yours" in m for m in caplog.messages)


def test_a_suspended_service_orders_nothing() -> None:
    service, names = three_targets()
    service.workers.running = {names[0]: 5}
    service.edit(lambda spec: spec.update(suspend="Suspended"))
    service.pass_()
    assert replicas(service, "target") == 0
    assert costs(service) == {}


def test_certificates_of_a_service_that_cannot_be_read_are_renewed() -> None:
    start = datetime.datetime.fromtimestamp(START, datetime.UTC)
    authorities = Authorities().renewed(start)
    service = OneService(authorities=lambda: authorities)
    service.rest(2)
    service.edit(lambda spec: spec.update(suspend="Perhaps"))
    service.pass_()
    pods, before = service.cluster.of("Pod"), copy.deepcopy(service.cluster.of("Secret"))
    service.pass_()
    assert len(before) == 2
    assert service.cluster.of("Secret") == before
    service.now += LIFE.total_seconds()
    service.pass_()
    after = service.cluster.of("Secret")
    for old, new in zip(before, after, strict=True):
        assert old["metadata"]["uid"] == new["metadata"]["uid"]
        assert old["data"]["tls.crt"] != new["data"]["tls.crt"]
    assert service.cluster.of("Pod") == pods
    assert service.condition("Degraded") == ("True", "InvalidSpec")
    service.cluster.refuse = forbidding("Secret", 500)
    service.now += LIFE.total_seconds()
    service.pass_()
    assert "Secret is not yours" in str(service.retries[-1])


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
