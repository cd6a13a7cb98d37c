"""Whoever applies a service is warned, and kept from what is not his, by the API server itself."""

import contextlib
import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.admission import advice
from outrider.operator.admission.advice_rules import ADVICE
from outrider.operator.admission.rule import broken
from outrider.operator.spec import SpeculativeService
from outrider.operator.spec.reading import validate
from tests.kube.chart import PRIVILEGES as RULES
from tests.kube.chart import Release
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.operator_process import OperatorProcess
from tests.kube.space import Space

WRITER, EDITOR = "writer", "editor"
"""Who may write services and nothing else, and who has the cluster's role `edit`."""
WARNED = re.compile(r"Warning: Validation failed for ValidatingAdmissionPolicy '\S+' with.*?: (.*)")
MEMORY = (
    "spec.target.resources: no memory is asked for; a node that runs short evicts such pods first"
)
Service = dict[str, Any]


@pytest.fixture(scope="module")
def release(control_plane: ControlPlane, definitions: None) -> Iterator[Release]:
    """A release that has no operator: nobody answers but the API server."""
    namespace = f"t-{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", namespace)
    release = Release(control_plane, "outrider", namespace)
    release.helm("install", "--set", f"crds.install=false,namespaces={{{namespace}}}")
    writes = ("role", WRITER, "--verb=create,update,patch,get", "--resource=speculativeservices")
    control_plane.kubectl("create", *writes, "-n", namespace)
    for role, users in (("role=writer", (WRITER, EDITOR)), ("clusterrole=edit", (EDITOR,))):
        binding = ("rolebinding", role.partition("=")[2], f"--{role}")
        control_plane.kubectl(
            "create", *binding, *(f"--user={user}" for user in users), "-n", namespace
        )
    yield release
    control_plane.helm("uninstall", release.name, "-n", namespace)
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def service(spec: str) -> Service:
    kind = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
    return {**kind, "metadata": {"name": "chat"}, "spec": yaml.safe_load(spec)}


def applied(release: Release, body: Service, *options: str) -> "subprocess.CompletedProcess[str]":
    """As a user applies it."""
    return kubectl(release, "apply", "--server-side", "-f", "-", *options, stdin=json.dumps(body))


def kubectl(release: Release, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """With all that it says, an error too."""
    place = release.control_plane.place
    command = (str(place.assets / "kubectl"), f"--kubeconfig={release.control_plane.kubeconfig}")
    return subprocess.run(
        (*command, "-n", release.namespace, *words),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def warned(release: Release, body: Service, *options: str) -> list[str]:
    said = applied(release, body, "--dry-run=server", *options)
    assert said.returncode == 0, said.stderr
    found = WARNED.findall(said.stderr)
    assert len(found) == said.stderr.count("Warning:")
    return sorted(found)


@pytest.fixture(scope="module")
def policies(release: Release) -> None:
    """The API server knows of both policies, which takes it a moment."""
    target = "model: {uri: hf://org/large}"
    bare = service(f"target: {{{target}}}")
    privileged = service(f"target: {{{target}, podTemplate: {{spec: {{hostPID: true}}}}}}")

    def known() -> bool:
        said = applied(release, privileged, "--dry-run=server", f"--as={WRITER}")
        return "hostPID" in said.stderr and warned(release, bare) == [MEMORY]

    release.control_plane.wait_until(known, "both policies are served")


CALM = "resources: {requests: {memory: 1Gi}}"
LARGE, SMALL = (f"model: {{uri: 'hf://org/{size}'}}" for size in ("large", "small"))
GPUS = "resources: {requests: {memory: 1Gi}, limits: {nvidia.com/gpu: %s}}"
ONCE = "cache: {type: PersistentVolumeClaim, size: 1Gi, accessMode: ReadWriteOnce}"
TEMPLATE = (
    "podTemplate: {metadata: {labels: {outrider.dev/role: x}, annotations: {outrider.dev/role: x}},"
    " spec: {terminationGracePeriodSeconds: 5, containers:"
    " [{name: main, args: [a], command: [b], image: c, resources: {}},"
    " {name: draft, args: [a], command: [b], image: c, resources: {}}]}}"
)
CASES = (
    f"target: {{{LARGE}, {CALM}}}",
    f"target: {{{LARGE}}}, draft: {{{SMALL}}}",
    f"target: {{{LARGE}, {CALM}, {TEMPLATE}}}, draft: {{{SMALL}, {CALM}, {TEMPLATE}}}",
    f"target: {{{LARGE}, {CALM}, {TEMPLATE}}}, draft: {{{SMALL}, {CALM}, placement: SamePod}}",
    f"target: {{{LARGE}, {GPUS % 2}, engine: {{device: CPU}}}},"
    f" draft: {{{SMALL}, {GPUS % 2}, engine: {{device: CPU}}}}",
    f"target: {{{LARGE}, {GPUS % 1}, parallelism: {{pipeline: 2}}}}",
    f"target: {{{LARGE}, {GPUS % 1}}}",
    f"target: {{{LARGE}, {CALM}, parallelism: {{tensor: 2}}}},"
    f" draft: {{{SMALL}, {CALM}, parallelism: {{tensor: 4, nodes: 2}}}}",
    f"target: {{{LARGE}, {CALM}, {ONCE}}}, draft: {{{SMALL}, {CALM}, {ONCE},"
    " scaling: {mode: Static}, update: {maxSurge: 1}}",
    f"target: {{{LARGE}, {CALM}, {ONCE}, replicas: 2}}, draft: {{{SMALL}, {CALM}, {ONCE}}}",
    f"target: {{{LARGE}, resources: {{limits: {{memory: 1Gi, amd.com/gpu: 1}}}}}},"
    f" draft: {{{SMALL}, resources: {{limits: {{memory: 1Gi, google.com/tpu: 4}}}}}}",
    f"target: {{{LARGE}, {GPUS % 1}, update: {{maxSurge: 0, maxUnavailable: 1}}}}",
    f"target: {{{LARGE}, {CALM}, engine: {{device: GPU}}}}",
    f"target: {{{LARGE}, {CALM}, pipeline: {{dtype: fp16}}}}",
    f"target: {{{LARGE}, {CALM}}}, draft: {{{SMALL}, {CALM}, placement: SamePod,"
    " scaling: {maxReplicas: 2}}, speculation: {sources: [Draft, Answers], nodesAhead: 4}",
    f"target: {{{LARGE}, {CALM}}}, draft: {{{SMALL}, placement: Colocated}}",
)
"""Specs that together break every rule of advice."""


def said_by_python(spec: str) -> list[str]:
    return sorted(broken(validate(SpeculativeService, service(f"{{{spec}}}")), ADVICE))


@pytest.mark.parametrize("spec", CASES)
def test_the_api_server_warns_in_the_words_of_the_status(
    release: Release, policies: None, spec: str
) -> None:
    body = service(f"{{{spec}}}")
    found = warned(release, body)
    assert found == said_by_python(spec)
    assert set(found) <= set(advice.on(validate(SpeculativeService, body)))


def test_every_advice_has_a_case() -> None:
    said = {one for spec in CASES for one in said_by_python(spec)}
    assert said == {f"{rule.place}: {rule.message}" for rule in ADVICE}


def test_a_template_that_is_none_is_no_advice(release: Release, policies: None) -> None:
    odd = "podTemplate: {spec: {containers: [5, {name: [main]}], terminationGracePeriodSeconds: x}}"
    assert warned(release, service(f"{{target: {{{LARGE}, {CALM}, {odd}}}}}")) == []


def test_a_template_whose_parts_are_no_mappings_is_refused(release: Release) -> None:
    for part in ("{spec: 5}", "{metadata: []}", "{metadata: {labels: a}}"):
        body = service(f"{{target: {{{LARGE}, podTemplate: {part}}}}}")
        create = ("create", "--dry-run=server", "-f", "-", "-n", release.namespace)
        with pytest.raises(KubectlError, match=r"podTemplate.* must be of type object"):
            release.control_plane.kubectl(*create, stdin=json.dumps(body))


CONTAINER = "{spec: {containers: [{name: main, %s}]}}"
VOLUME = "{spec: {volumes: [{name: a, %s}]}}"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/main"
PRIVILEGES = (
    ("HostNamespaces", "{spec: {hostNetwork: true}}"),
    ("HostNamespaces", "{spec: {hostPID: true}}"),
    ("HostNamespaces", "{spec: {hostIPC: true}}"),
    ("HostPorts", CONTAINER % "ports: [{containerPort: 1, hostPort: 1}]"),
    ("ProbedHosts", CONTAINER % "livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}"),
    ("ProbedHosts", CONTAINER % "lifecycle: {preStop: {tcpSocket: {host: a, port: 80}}}"),
    ("Volumes", VOLUME % "hostPath: {path: /}"),
    ("Volumes", VOLUME % "nfs: {server: a, path: /}"),
    ("Privileged", CONTAINER % "securityContext: {privileged: true}"),
    ("Privileged", CONTAINER % "securityContext: {allowPrivilegeEscalation: true}"),
    ("Privileged", "{spec: {initContainers: [{name: a, securityContext: {privileged: true}}]}}"),
    ("Capabilities", CONTAINER % "securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
    ("Profiles", CONTAINER % "securityContext: {seccompProfile: {type: Unconfined}}"),
    ("Profiles", "{spec: {securityContext: {appArmorProfile: {type: Unconfined}}}}"),
    ("Profiles", "{spec: {securityContext: {sysctls: [{name: a, value: b}]}}}"),
    ("Profiles", f"{{metadata: {{annotations: {{{APP_ARMOR}: unconfined}}}}}}"),
    ("RootUsers", "{spec: {securityContext: {runAsUser: 0}}}"),
    ("RootUsers", CONTAINER % "securityContext: {runAsUser: 0}"),
    ("RootUsers", "{spec: {securityContext: {runAsNonRoot: false}}}"),
    ("Capabilities", CONTAINER % "securityContext: {capabilities: {drop: [NET_RAW]}}"),
    ("Labels", "{metadata: {labels: {app: payments}}}"),
    ("InlineDrivers", VOLUME % "csi: {driver: csi.cert-manager.io}"),
    ("PullSecrets", "{spec: {imagePullSecrets: [{name: of-others}]}}"),
    ("ServiceAccounts", "{spec: {serviceAccountName: default}}"),
    ("ServiceAccounts", "{spec: {serviceAccount: default}}"),
    ("Secrets", VOLUME % "secret: {secretName: a}"),
    ("Secrets", VOLUME % "projected: {sources: [{secret: {name: a}}]}"),
    ("Secrets", CONTAINER % "env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}}}]"),
    ("Secrets", CONTAINER % "envFrom: [{secretRef: {name: a}}]"),
)
"""Pod templates that ask for what their author may not have, each by the rule that keeps it."""
UNGUARDED = (
    ("", "{spec: {securityContext: null}}"),
    ("", CONTAINER % "securityContext: null"),
    ("RootUsers", "{spec: {securityContext: {runAsNonRoot: null}}}"),
    ("Privileged", CONTAINER % "securityContext: {allowPrivilegeEscalation: null}"),
    ("Capabilities", CONTAINER % "securityContext: {capabilities: null}"),
    ("Capabilities", CONTAINER % "securityContext: {capabilities: {drop: null}}"),
    ("Profiles", "{spec: {securityContext: {seccompProfile: null}}}"),
)
"""Pod templates that take away what the operator guards its pods with, which `kubectl apply` drops
and other ways to write do not, each with the rule that is named, where it is one alone."""
HARMLESS = (
    "{metadata: {labels: {outrider.dev/team: a}, annotations: {team: a}},"
    " spec: {priorityClassName: a, tolerations: [{key: a}],"
    " serviceAccountName: chat, securityContext: {runAsUser: 5, fsGroup: 5},"
    " volumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: b}},"
    " {name: c, persistentVolumeClaim: {claimName: c}}], containers: [{name: main, ports:"
    " [{containerPort: 1}], env: [{name: A, value: b}], securityContext: {capabilities:"
    " {drop: [ALL]}, allowPrivilegeEscalation: false}, livenessProbe: {httpGet: {port: 1}}}]}}"
)
NAMED = (
    "access: {apiKeysSecretRef: {name: a}}",
    "access: {tlsSecretRef: {name: a}}",
)


def refused(release: Release, body: Service, user: str) -> str:
    """What the API server says to a user; empty: it takes it."""
    said = applied(release, body, "--dry-run=server", f"--as={user}")
    return said.stderr if said.returncode else ""


def test_every_privilege_has_a_case() -> None:
    assert {name for name, _ in PRIVILEGES} == RULES.keys()


@pytest.mark.parametrize(("name", "template"), PRIVILEGES)
def test_who_may_not_make_pods_gets_no_privileges_by_a_service(
    release: Release, policies: None, name: str, template: str
) -> None:
    message = RULES[name]["message"]
    for role in ("target: {%s, podTemplate: %s}", "target: {%s}, draft: {%s, podTemplate: %s}"):
        models = (LARGE, SMALL)[: role.count("%s") - 1]
        body = service("{" + role % (*models, template) + "}")
        assert message in refused(release, body, WRITER)
        assert refused(release, body, EDITOR) == "", "who may make pods could have it anyway"


@pytest.mark.parametrize(("name", "template"), UNGUARDED)
def test_who_may_not_make_pods_takes_no_guard_away(
    release: Release, policies: None, name: str, template: str
) -> None:
    body = service(f"{{target: {{{LARGE}, podTemplate: {template}}}}}")
    assert f"(rule {name}" in refused(release, body, WRITER)
    assert refused(release, body, EDITOR) == ""


@pytest.mark.parametrize("named", NAMED)
def test_a_secret_is_named_only_by_who_may_read_it(
    release: Release, policies: None, named: str
) -> None:
    body = service(f"{{target: {{{LARGE}}}, {named}}}")
    assert "a Secret, in podTemplate" in refused(release, body, WRITER)
    assert refused(release, body, EDITOR) == ""


def test_what_asks_for_no_privilege_is_everybodys(release: Release, policies: None) -> None:
    body = service(f"{{target: {{{LARGE}, podTemplate: {HARMLESS}}}}}")
    assert refused(release, body, WRITER) == ""


def test_who_may_not_have_privileges_keeps_them_only_while_the_spec_stays(
    release: Release, policies: None
) -> None:
    body = service(f"{{target: {{{LARGE}, podTemplate: {{spec: {{hostPID: true}}}}}}}}")
    assert applied(release, body, f"--as={EDITOR}").returncode == 0
    body["metadata"]["labels"] = {"team": "a"}
    own = ("--field-manager=kubectl", f"--as={WRITER}")
    assert applied(release, body, *own).returncode == 0, "labels give nothing away"
    body["spec"]["target"]["image"] = "mine:1"
    assert "hostPID" in applied(release, body, *own).stderr
    release.control_plane.kubectl("delete", "specsvc", "chat", "-n", release.namespace)


def test_an_upgrade_may_trust_nobody_allow_some_or_only_warn(
    release: Release, policies: None
) -> None:
    def upgrade(values: str) -> None:
        own = f"crds.install=false,namespaces={{{release.namespace}}}"
        privileges = ",".join(f"admission.privileges.{one}" for one in values.split(" "))
        release.helm("upgrade", "--set", f"{own},{privileges}")

    until = release.control_plane.wait_until
    host = service(f"{{target: {{{LARGE}, podTemplate: {{spec: {{hostPID: true}}}}}}}}")
    upgrade("trustPodCreators=false")
    until(lambda: "not for services here" in refused(release, host, EDITOR), "it trusts nobody")
    upgrade("allowed={HostNamespaces}")
    until(lambda: refused(release, host, WRITER) == "", "it allows namespaces of the host")
    upgrade("action=Deny")
    until(lambda: "hostPID" in refused(release, host, WRITER), "it does not any more")
    upgrade("action=Warn")
    until(lambda: refused(release, host, WRITER) == "", "it only warns")
    assert any("hostPID" in one for one in warned(release, host, f"--as={WRITER}"))
    upgrade("action=Deny")
    until(lambda: "hostPID" in refused(release, host, WRITER), "it refuses again")


@contextlib.contextmanager
def operating(release: Release, folder: Path) -> Iterator[None]:
    operator = OperatorProcess(release.control_plane, folder, release.namespace)
    operator.start()
    try:
        operator.wait_until_leading()
        yield
    finally:
        operator.end()


def test_a_stored_service_keeps_what_is_refused_since_and_its_status_says_so(
    release: Release, policies: None, tmp_path: Path
) -> None:
    space = Space(release.control_plane, release.namespace)
    template = "{metadata: {labels: {app: payments}}, spec: {hostPID: true}}"
    body = service(f"{{target: {{{LARGE}, podTemplate: {template}}}, {NAMED[0]}}}")
    rules = ["HostNamespaces", "Labels"]

    def upgrade(action: str) -> None:
        own = f"crds.install=false,namespaces={{{release.namespace}}}"
        release.helm("upgrade", "--set", f"{own},admission.privileges.action={action}")

    def told(key: str) -> list[str]:
        return sorted(re.findall(r"\(rule (\w+)\)", " ".join(space.status("chat").get(key, ()))))

    def is_judged() -> bool:
        asked = ("patch", "specsvc", "chat", "--subresource=status", "--type=merge")
        said = kubectl(release, *asked, "--patch={}", "--dry-run=server")
        return len(WARNED.findall(said.stderr)) == len(rules)

    upgrade("Allow")
    space.until(lambda: refused(release, body, WRITER) == "", "anybody may have it")
    assert applied(release, body, f"--as={WRITER}").returncode == 0
    with operating(release, tmp_path / "before"):
        space.until(lambda: "observedGeneration" in space.status("chat"), "it has a status")
        made = space.deployment("chat", Role.TARGET)
    assert (told("advice"), told("admitted")) == ([], [])
    upgrade("Deny")
    space.until(is_judged, "the API server warns of stored services, but not of their Secrets")
    with operating(release, tmp_path / "after"):
        space.until(lambda: told("advice") == rules, "its status names both rules")
        kept = space.deployment("chat", Role.TARGET)
        assert kept["metadata"]["generation"] == made["metadata"]["generation"]
        body["spec"]["target"]["image"] = "mine:1"
        assert "hostPID" in refused(release, body, WRITER)
        assert applied(release, body, "--force-conflicts", f"--as={EDITOR}").returncode == 0
        space.until(lambda: told("admitted") == rules, "its new author may have both")
        assert told("advice") == []
    release.control_plane.kubectl("delete", "specsvc", "chat", "-n", release.namespace)


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"get", "list", "watch", "create", "update", "patch", "delete"}),
        ("admin", {"get", "list", "watch", "create", "update", "patch", "delete"}),
    ],
)
def test_the_clusters_own_roles_read_and_write_services(
    control_plane: ControlPlane, definitions: None, namespace: str, role: str, verbs: set[str]
) -> None:
    roles = [one for one in people(control_plane) if one["kind"] == "ClusterRole"]
    user = f"--as={role}-of-{namespace}"
    binding = ("rolebinding", "people", f"--clusterrole={role}", user.replace("--as", "--user"))
    control_plane.kubectl("create", *binding, "-n", namespace)

    def may(verb: str, plural: str = "speculativeservices", subresource: str = "") -> bool:
        asked = (verb, f"{plural}.outrider.dev", f"--subresource={subresource}")
        try:
            return "yes" in control_plane.kubectl("auth", "can-i", *asked, "-n", namespace, user)
        except KubectlError:  # no
            return False

    try:
        for one in roles:
            control_plane.apply(one)
        control_plane.wait_until(lambda: may("list"), f"the cluster's role {role} has taken it up")
        every = {"get", "list", "watch", "create", "update", "patch", "delete"}
        control_plane.wait_until(
            lambda: {verb for verb in every if may(verb)} == verbs, f"{role} may {verbs}"
        )
        assert may("patch", "speculativerolescalers", "scale") is (role != "view")
        assert not may("create", "speculativerolescalers")
        assert not may("patch", "speculativeservices", "status")
    finally:
        for one in roles:
            control_plane.kubectl("delete", "clusterrole", one["metadata"]["name"])


def people(control_plane: ControlPlane) -> list[Service]:
    """Objects of the chart for people."""
    shown = Release(control_plane, "outrider", "default").rendered(
        "--show-only", "templates/roles/aggregated.yaml"
    )
    assert len(shown) == 2
    return shown
