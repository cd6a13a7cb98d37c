"""What a service may ask for only where its author could have it without the operator, in CEL.

The operator makes pods that whoever writes the service may not make: these rules keep them from
host namespaces, files of nodes, privileges, other accounts and Secrets by that way. They say
nothing of what a worker's image runs. Leaves the policy that the API server evaluates to
`policies`.
"""

from dataclasses import dataclass

from outrider.contract.settings import Role

VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""Kinds of volumes that the Pod Security Standard `restricted` has, and images; `secret` is for
those who may read Secrets."""
_SECRET_VOLUME = (
    "has(v.secret) || has(v.csi) && has(v.csi.nodePublishSecretRef) ||"
    " v.?projected.?sources.orValue([]).exists(o, has(o.secret))"
)
_SECRET_VARIABLE = (
    "c.?env.orValue([]).exists(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef)) ||"
    " c.?envFrom.orValue([]).exists(e, has(e.secretRef))"
)
_PODS = (f"object.spec.?{role}.?podTemplate.?spec.orValue({{}})" for role in Role)
_ANNOTATIONS = (
    f"object.spec.?{role}.?podTemplate.?metadata.?annotations.orValue({{}})" for role in Role
)
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""How annotations of a pod begin that set AppArmor's profile of a container, as its field does."""
_REFERENCES = (
    "access.?apiKeysSecretRef",
    "access.?tlsSecretRef",
    "target.?model.?tokenSecretRef",
    "draft.?model.?tokenSecretRef",
)
VARIABLES = {
    "pods": f"[{', '.join(_PODS)}]",
    "annotations": f"[{', '.join(_ANNOTATIONS)}]",
    "containers": "variables.pods.map(p, p.?containers.orValue([]) +"
    " p.?initContainers.orValue([]))",
    "contexts": "[variables.pods.map(p, p.?securityContext.orValue({}))] +"
    " variables.containers.map(l, l.map(c, c.?securityContext.orValue({})))",
    "namesSecrets": " || ".join(f"object.spec.?{path}.hasValue()" for path in _REFERENCES),
    "readsSecrets": "authorizer.group('').resource('secrets')"
    ".namespace(object.metadata.namespace).check('get').allowed()",
}
"""Variables of the rules: the pods of all templates, their annotations, lists of their containers,
one a pod, lists of security contexts, whether a service names Secrets, and whether its author may
read them."""


@dataclass(frozen=True, slots=True)
class PrivilegeRule:
    """One thing that is refused."""

    name: str
    """By which the chart allows it."""
    cel: str
    """True: nothing is asked for."""
    message: str


def _any_true(one: str, *keys: str) -> str:
    return " || ".join(f"{one}.?{key}.orValue(false) == true" for key in keys)


def _no_pod(condition: str) -> str:
    return f"!variables.pods.exists(p, {condition})"


def _no_volume(condition: str) -> str:
    return _no_pod(f"p.?volumes.orValue([]).exists(v, {condition})")


def _no_container(condition: str) -> str:
    return f"!variables.containers.exists(l, l.exists(c, {condition}))"


def _no_context(condition: str) -> str:
    return f"!variables.contexts.exists(l, l.exists(s, {condition}))"


_HANDLERS = tuple(
    f"?{place}.?{kind}"
    for place in (
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle.?postStart",
        "lifecycle.?preStop",
    )
    for kind in ("httpGet", "tcpSocket")
)
_NAMED = ", ".join(f"'{kind}'" for kind in ("name", *VOLUMES))
RULES = (
    PrivilegeRule(
        "HostNamespaces",
        _no_pod(_any_true("p", "hostNetwork", "hostPID", "hostIPC")),
        "podTemplate: hostNetwork, hostPID and hostIPC",
    ),
    PrivilegeRule(
        "HostPorts",
        _no_container("c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)"),
        "podTemplate: a hostPort",
    ),
    PrivilegeRule(
        "ProbedHosts",
        _no_container(" || ".join(f"c.{path}.?host.hasValue()" for path in _HANDLERS)),
        "podTemplate: a probe or handler of another host",
    ),
    PrivilegeRule(
        "Volumes",
        _no_volume(f"v.exists(k, !(k in [{_NAMED}]))"),
        "podTemplate: a hostPath, or another volume than " + ", ".join(VOLUMES),
    ),
    PrivilegeRule(
        "Privileged",
        _no_context(_any_true("s", "privileged", "allowPrivilegeEscalation")),
        "podTemplate: privileged and allowPrivilegeEscalation",
    ),
    PrivilegeRule(
        "Capabilities",
        _no_context("size(s.?capabilities.?add.orValue([])) > 0"),
        "podTemplate: added capabilities",
    ),
    PrivilegeRule(
        "Profiles",
        _no_context(
            "s.?seccompProfile.?type.orValue('') == 'Unconfined' ||"
            " s.?appArmorProfile.?type.orValue('') == 'Unconfined' ||"
            " s.?procMount.orValue('Default') != 'Default' || has(s.seLinuxOptions) ||"
            " s.?windowsOptions.?hostProcess.orValue(false) == true ||"
            " size(s.?sysctls.orValue([])) > 0"
        )
        + f" && !variables.annotations.exists(a, a.exists(k, k.startsWith('{_APP_ARMOR}')))",
        "podTemplate: Unconfined profiles, AppArmor by annotations, procMount, seLinuxOptions,"
        " hostProcess and sysctls",
    ),
    PrivilegeRule(
        "ServiceAccounts",
        _no_pod(
            "p.?serviceAccountName.orValue(object.metadata.name) != object.metadata.name ||"
            " p.?serviceAccount.orValue(object.metadata.name) != object.metadata.name"
        ),
        "podTemplate: another service account than the service's own",
    ),
    PrivilegeRule(
        "Secrets",
        "variables.readsSecrets || (!variables.namesSecrets &&"
        f" {_no_volume(_SECRET_VOLUME)} && {_no_container(_SECRET_VARIABLE)})",
        "a Secret, in podTemplate or by its name, that the service's author may not read",
    ),
)
"""What is refused, each by its name. `restricted` of Pod Security and these have the same aim: what
baseline refuses is refused, and beyond it what is somebody else's in the namespace."""
