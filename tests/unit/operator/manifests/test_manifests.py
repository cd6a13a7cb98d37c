"""Built objects: the examples as golden files, and invariants of any service."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.admission import advice
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import BY_NAME, POD_MONITOR
from outrider.operator.manifests.desired import Platform, desired
from outrider.operator.manifests.overlay import merge
from outrider.operator.naming import REVISION_LABEL, ROLE_LABEL, SELECTOR, selector
from outrider.operator.spec import SpecError, SpeculativeService, load
from tests.unit.operator.golden import (
    EXAMPLES,
    FOLDER,
    NOTE,
    WRITTEN,
    arguments,
    owner_of,
    rendered,
    wanted,
)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_the_objects_of_an_example_are_those_that_are_written_down(path: Any) -> None:
    written = (FOLDER / path.name).read_text(encoding="utf-8")
    assert written == rendered(path), NOTE


def service_of(spec: str) -> SpeculativeService:
    head = "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\n"
    return load(f"{head}metadata: {{name: chat}}\nspec: {spec}")


def made(spec: str, **numbers: int | None) -> dict[tuple[str, str], Object]:
    """The objects of a service, by kind and name; `numbers` are those of replicas."""
    service = service_of(spec)
    objects = wanted(service, {Role(role): number for role, number in numbers.items()}).objects
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def spec(target: str = "", draft: str | None = "", rest: str = "") -> str:
    parts = [f"target: {{model: {{uri: 'hf://o/large'}}{target}}}"]
    if draft is not None:
        parts.append(f"draft: {{model: {{uri: 'hf://o/small'}}{draft}}}")
    return "{" + ", ".join([*parts, *([rest] if rest else [])]) + "}"


def pod(objects: dict[tuple[str, str], Object], role: str = "target") -> Object:
    found: Object = objects["Deployment", f"chat-{role}"]["spec"]["template"]["spec"]
    return found


def test_every_child_is_owned_labelled_and_of_a_known_kind() -> None:
    key, _, value = SELECTOR.partition("=")
    for (kind, _), one in made(spec()).items():
        meta = one["metadata"]
        assert kind in BY_NAME
        assert meta["labels"][key] == value
        assert [o["uid"] for o in meta["ownerReferences"]] == [owner_of("chat").uid]
        assert len(meta["name"]) <= 63


def test_the_pods_of_a_role_are_found_by_its_selectors() -> None:
    objects = made(spec(), target=2, draft=2)
    for role in Role:
        labels = objects["Deployment", f"chat-{role}"]["spec"]["template"]["metadata"]["labels"]
        for kind, name in (
            ("Deployment", f"chat-{role}"),
            ("PodDisruptionBudget", f"chat-{role}"),
        ):
            picked = objects[kind, name]["spec"]["selector"]["matchLabels"]
            assert picked.items() <= labels.items()
        picked = objects["Service", f"chat-{role}s"]["spec"]["selector"]
        assert picked.items() <= labels.items()
        policy = objects["NetworkPolicy", f"chat-{role}"]["spec"]["podSelector"]["matchLabels"]
        assert policy.items() <= labels.items()


def ingress(objects: dict[tuple[str, str], Object], role: str, port: int) -> list[Object]:
    """The rules by which connections to a port of a role's pods are let in."""
    rules = objects["NetworkPolicy", f"chat-{role}"]["spec"]["ingress"]
    return [one for one in rules if port in [p["port"] for p in one.get("ports", ())]]


def test_only_the_operators_pods_in_its_own_namespace_reach_control() -> None:
    platform = Platform(image="w:1", namespace="outrider-system")
    found = desired(*arguments(service_of(spec()), {}), platform).objects
    objects = {(one["kind"], one["metadata"]["name"]): one for one in found}
    for role in Role:
        (rule,) = ingress(objects, role, 50054)
        (operator,) = rule["from"]
        names = operator["namespaceSelector"]["matchLabels"]
        assert names == {"kubernetes.io/metadata.name": "outrider-system"}
        assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
        (links,) = ingress(objects, role, 50051)
        guests = {"outrider.dev/drafts-of": "chat", "outrider.dev/role": "target"}
        theirs = [_pods_of("target"), {"podSelector": {"matchLabels": guests}}]
        assert links.get("from") == (None if role is Role.TARGET else theirs)


def _pods_of(role: str) -> Object:
    return {"podSelector": {"matchLabels": selector("chat", Role(role))}}


def test_clients_can_be_kept_to_namespaces_beside_the_services_own() -> None:
    objects = made(spec(rest="networkPolicy: {clientNamespaces: [web, monitoring]}"))
    for role, port in (("target", 50051), ("target", 8000), ("draft", 8000)):
        (rule,) = ingress(objects, role, port)
        own, named = rule["from"]
        assert own == {"podSelector": {}}
        (names,) = named["namespaceSelector"]["matchExpressions"]
        assert names["values"] == ["web", "monitoring"]


@pytest.mark.parametrize(
    ("policy", "ports"), [("{}", [443]), ("{egressPorts: [80, 4317]}", [80, 4317])]
)
def test_pods_reach_dns_their_own_service_and_what_is_named(policy: str, ports: list[int]) -> None:
    found = made(spec(rest=f"networkPolicy: {policy}"))["NetworkPolicy", "chat-draft"]["spec"]
    assert found["policyTypes"] == ["Ingress", "Egress"]
    dns, own, named = found["egress"]
    asked = {(one["protocol"], one["port"]) for one in dns["ports"]}
    assert asked == {(protocol, port) for protocol in ("UDP", "TCP") for port in (53, 5353)}
    assert own == {"to": [{"podSelector": {"matchLabels": {"outrider.dev/service": "chat"}}}]}
    assert [one["port"] for one in named["ports"]] == ports
    closed = made(spec(rest="networkPolicy: {egressPorts: []}"))["NetworkPolicy", "chat-draft"]
    assert len(closed["spec"]["egress"]) == 2


@pytest.mark.parametrize(
    ("text", "role", "same"),
    [
        (spec(", replicas: 3"), "target", True),
        (spec(rest="speculation: {maxRows: 4}"), "target", True),
        (spec(rest="suspend: Suspended"), "target", True),
        (spec(draft=", engine: {threads: 2}"), "target", True),
        (spec(draft=", engine: {threads: 2}"), "draft", False),
        (spec(", image: 'worker:2'"), "target", False),
        (spec(", image: 'worker:2'"), "draft", True),
        (spec(", engine: {dtype: bf16}"), "target", False),
        (spec(", resources: {limits: {memory: 4Gi}}"), "target", False),
        (spec(", podTemplate: {spec: {priorityClassName: high}}"), "target", False),
    ],
)
def test_only_what_a_role_s_pods_are_made_of_changes_its_revision(
    text: str, role: str, same: bool
) -> None:
    def revision(objects: dict[tuple[str, str], Object]) -> str:
        template = objects["Deployment", f"chat-{role}"]["spec"]["template"]
        return str(template["metadata"]["labels"][REVISION_LABEL])

    assert (revision(made(spec())) == revision(made(text))) is same


def test_pods_are_restricted() -> None:
    for role in Role:
        template = pod(made(spec()), role)
        assert template["securityContext"]["runAsNonRoot"] is True
        assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert template["automountServiceAccountToken"] is False
        for container in (*template["initContainers"], *template["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_preparing_asks_for_what_serving_asks_for() -> None:
    template = pod(made(spec(", resources: {requests: {cpu: 2, memory: 4Gi}}")))
    (prepare,), (main,) = template["initContainers"], template["containers"]
    assert prepare["resources"] == main["resources"] == {"requests": {"cpu": 2, "memory": "4Gi"}}


def test_a_token_is_for_who_fetches_and_the_worker_asks_nobody() -> None:
    text = spec().replace(
        "hf://o/large", "hf://o/large', tokenSecretRef: {name: hub}, servedName: 'm"
    )
    template = pod(made(text))
    (prepare,), (main,) = template["initContainers"], template["containers"]
    token = next(one for one in prepare["env"] if one["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"]["name"] == "hub"
    names = {one["name"] for one in main["env"]}
    assert "HF_TOKEN" not in names
    assert "HF_HUB_OFFLINE" in names
    assert "HF_HUB_OFFLINE" not in {one["name"] for one in prepare["env"]}


def test_every_mount_has_a_volume() -> None:
    text = spec(", parallelism: {tensor: 2}, cache: {type: PersistentVolumeClaim, size: 1Gi}")
    template = pod(made(text))
    volumes = {volume["name"] for volume in template["volumes"]}
    for container in (*template["initContainers"], *template["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert ("PersistentVolumeClaim", "chat-target-cache") in made(text)


def test_a_cache_in_a_scratch_folder_is_bounded_by_its_size() -> None:
    for target, expected in ((", cache: {size: 20Gi}", {"sizeLimit": "20Gi"}), ("", {})):
        volumes = pod(made(spec(target)))["volumes"]
        (cache,) = (volume for volume in volumes if volume["name"] == "cache")
        assert cache["emptyDir"] == expected


def test_settings_are_named_by_their_content_and_never_change() -> None:
    def names(text: str) -> set[str]:
        return {name for kind, name in made(text) if kind == "ConfigMap"}

    first, second = names(spec()), names(spec(", engine: {threads: 2}"))
    assert len(first & second) == 2, "the intent and the draft's settings"
    assert len(first | second) == 4
    assert pod(made(spec()))["volumes"][0]["configMap"]["name"] in first


def test_a_template_cannot_change_what_pods_are_found_by() -> None:
    text = (
        ", podTemplate: {metadata: {labels: {outrider.dev/role: x, mine: y},"
        " annotations: {outrider.dev/settings: x}}}"
    )
    labels = made(spec(text))["Deployment", "chat-target"]["spec"]["template"]["metadata"]
    assert labels["labels"][ROLE_LABEL] == "target"
    assert labels["labels"]["mine"] == "y"
    assert labels["annotations"]["outrider.dev/settings"].startswith("chat-target-")


def test_a_template_adds_a_mount_and_a_sidecar() -> None:
    text = (
        ", podTemplate: {spec: {containers: [{name: main, env: [{name: A, value: b}],"
        " volumeMounts: [{name: cache, mountPath: /data, subPath: d}]}, {name: sidecar}]}}"
    )
    template = pod(made(spec(text)))
    main, sidecar = template["containers"]
    assert sidecar == {"name": "sidecar"}
    paths = [mount["mountPath"] for mount in main["volumeMounts"]]
    assert paths == [
        "/etc/outrider/settings",
        "/var/cache/outrider",
        "/tmp",
        "/etc/outrider/policy",
        "/data",
    ]
    assert {"name": "A", "value": "b"} in main["env"]
    assert len(main["env"]) == 4


@pytest.mark.parametrize("part", ["metadata: 1", "spec: []", "metadata: {labels: 1}"])
def test_a_template_whose_parts_are_no_mappings_is_refused(part: str) -> None:
    with pytest.raises(SpecError, match=r"target\.podTemplate"):
        made(spec(f", podTemplate: {{{part}}}"))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["main", "cache", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "mountPath", "env", "volumeMounts", "args"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
LISTS = ("containers", "initContainers", "volumes", "affinity", "serviceAccountName")


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(LISTS, ANYTHING)))
def test_a_template_s_nonsense_is_for_the_api_server_to_refuse(nonsense: Object) -> None:
    text = spec(f", podTemplate: {{spec: {json.dumps(nonsense)}}}")
    assert ("Deployment", "chat-target") in made(text)
    assert [*advice.on(service_of(text))]


@pytest.mark.parametrize(
    ("text", "kind", "name", "there"),
    [
        (spec(), "NetworkPolicy", "chat-draft", True),
        (spec(rest="networkPolicy: {mode: Disabled}"), "NetworkPolicy", "chat-draft", False),
        (spec(), "PodDisruptionBudget", "chat-draft", True),
        (spec(rest="podDisruptionBudget: {mode: Disabled}"), "PodDisruptionBudget", "chat-draft",
         False),
        (spec(), "PodMonitor", "chat", True),
        (spec(rest="monitoring: {mode: Disabled}"), "PodMonitor", "chat", False),
        (spec(draft=None), "Deployment", "chat-draft", False),
        (spec(draft=", placement: Colocated"), "Deployment", "chat-draft", False),
        (spec(), "SpeculativeRoleScaler", "chat-target", False),
        (spec(", scaling: {mode: External}"), "SpeculativeRoleScaler", "chat-target", True),
        (spec(", cache: {type: PersistentVolumeClaim, claimName: mine}"), "PersistentVolumeClaim",
         "chat-target-cache", False),
    ],
)  # fmt: skip
def test_what_is_made_when(text: str, kind: str, name: str, there: bool) -> None:
    assert ((kind, name) in made(text, target=1, draft=1)) is there


def test_a_kind_that_the_cluster_lacks_is_not_made() -> None:
    service = load(EXAMPLES[0].read_text(encoding="utf-8"))
    bare = Platform(image="worker:1")
    objects = desired(*arguments(service, {}), bare).objects
    assert POD_MONITOR.name not in {one["kind"] for one in objects}


@pytest.mark.parametrize(
    ("base", "over", "joined"),
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ([1, 2], [3], [3]),
        (
            {"containers": [{"name": "a", "x": 1}]},
            {"containers": [{"name": "b"}, {"name": "a", "y": 2}]},
            {"containers": [{"name": "a", "x": 1, "y": 2}, {"name": "b"}]},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/b"}]},
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/a"},
                    {"name": "v", "mountPath": "/b"},
                ]
            },
        ),
        (
            {"ports": [{"name": "grpc", "containerPort": 1}]},
            {"ports": [{"containerPort": 1, "hostPort": 2}]},
            {"ports": [{"name": "grpc", "containerPort": 1, "hostPort": 2}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "b"}]},
            {"tolerations": [{"key": "b"}, {"key": "b"}]},
        ),
        ({"env": [{"name": "a"}]}, {"env": [{"image": "b"}]}, {"env": [{"image": "b"}]}),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
        ),
        ({"a": [1]}, {"a": "text"}, {"a": "text"}),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"x": 1}}]},
            {"volumes": [{"name": "a", "hostPath": {"path": "/a"}}, {"name": "b", "emptyDir": {}}]},
            {
                "volumes": [
                    {"name": "b", "emptyDir": {"x": 1}},
                    {"name": "a", "hostPath": {"path": "/a"}},
                ]
            },
        ),
        ([None], [{"a": None, "mountPath": False}], [{"mountPath": False}]),
    ],
)
def test_a_template_is_laid_over_member_by_member(base: Any, over: Any, joined: Any) -> None:
    assert merge(base, over) == joined


SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b", "/c"])
KEYS = st.sampled_from(["name", "mountPath", "key", "env", "volumes", "tolerations", "a"])
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(KEYS, PLAIN, max_size=4)


@given(MAPPINGS, MAPPINGS)
def test_laid_over_twice_is_as_once(base: Any, over: Any) -> None:
    once = merge(base, over)
    assert merge(once, over) == once


@given(MAPPINGS, MAPPINGS)
def test_what_a_template_does_not_speak_of_stays(base: Any, over: Any) -> None:
    joined = merge(base, over)
    for key in base.keys() - over.keys():
        if base[key] is not None:
            assert joined[key] == base[key]


@given(MAPPINGS, MAPPINGS)
def test_laying_over_changes_neither_side(base: Any, over: Any) -> None:
    before = yaml.safe_dump([base, over])
    merge(base, over)
    assert yaml.safe_dump([base, over]) == before


def test_pods_that_torch_links_reach_each_other_on_every_port() -> None:
    objects = made(spec(rest="speculation: {link: Distributed}"))
    for role, other in (("target", "draft"), ("draft", "target")):
        policy = objects["NetworkPolicy", f"chat-{role}"]["spec"]
        (rule,) = (one for one in policy["ingress"] if "ports" not in one)
        (peer,) = rule["from"]
        assert peer["podSelector"]["matchLabels"] == selector("chat", Role(other))


@pytest.mark.parametrize("seconds", [1, 600, 86_400])
def test_a_target_has_time_to_finish_the_longest_answer(seconds: int) -> None:
    objects = made(spec(f", requests: {{maxSeconds: {seconds}}}"))
    settings = worker_settings(objects, "target")
    assert settings.lame_duck_seconds > 0
    assert settings.grace_seconds - settings.lame_duck_seconds == seconds
    assert pod(objects)["terminationGracePeriodSeconds"] > settings.grace_seconds


def test_a_draft_ends_at_once() -> None:
    objects = made(spec(", requests: {maxSeconds: 600}"))
    settings = worker_settings(objects, "draft")
    assert settings.lame_duck_seconds == 0
    assert settings.grace_seconds < pod(objects, "draft")["terminationGracePeriodSeconds"] < 600


def worker_settings(objects: dict[tuple[str, str], Object], role: str) -> WorkerSettings:
    volume = next(v for v in pod(objects, role)["volumes"] if v["name"] == "settings")
    data = objects["ConfigMap", volume["configMap"]["name"]]["data"]
    return WorkerSettings.from_json(data["settings.json"])


def test_a_worker_that_hangs_is_not_given_the_time_of_an_answer() -> None:
    template = pod(made(spec(", requests: {maxSeconds: 3600}")))
    probe = template["containers"][0]["livenessProbe"]
    assert probe["terminationGracePeriodSeconds"] == 30
    assert template["terminationGracePeriodSeconds"] == 3630
