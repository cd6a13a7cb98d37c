"""The chart as Helm renders and installs it.

    release = Release(control_plane, "outrider", namespace)
    release.install("--set", "replicas=2")
    release.arguments, release.kubeconfig(), release.granted()

Leaves the operator that is started with it to `operator_process`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kube.control_plane import ControlPlane

CHART = Path(__file__).parents[2] / "charts" / "outrider"
Object = dict[str, Any]
PRIVILEGES: dict[str, Object] = yaml.safe_load(
    (CHART / "files" / "admission" / "privileges.yaml").read_text()
)["validations"]
"""What pod templates of services may not ask for, by name."""
Permission = tuple[str, str, str]
"""API group, resource with its subresource, verb."""
LISTEN = "--listen="
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
"""Beginning of the labels by which a cluster's roles take up others."""


@dataclass(slots=True)
class Release:
    """One release of the chart."""

    control_plane: ControlPlane
    name: str
    namespace: str

    def helm(self, verb: str, *options: str) -> str:
        """Installs, upgrades, renders (template), in its namespace."""
        chart = (str(CHART),) if verb in ("install", "upgrade", "template") else ()
        return self.control_plane.helm(verb, self.name, *chart, "-n", self.namespace, *options)

    def rendered(self, *options: str) -> list[Object]:
        """All objects, those of hooks included."""
        text = self.helm("template", *options)
        return [one for one in yaml.safe_load_all(text) if one]

    def stored(self) -> list[Object]:
        """What Helm has installed."""
        text = self.control_plane.helm("get", "manifest", self.name, "-n", self.namespace)
        return [one for one in yaml.safe_load_all(text) if one]

    @property
    def deployment(self) -> Object:
        """The operator's."""
        return only(self.stored(), "Deployment")

    @property
    def arguments(self) -> list[str]:
        """The operator's, as its pod has them, but `--listen`: a test has a port of its own."""
        (container,) = self.deployment["spec"]["template"]["spec"]["containers"]
        given: list[str] = container["args"]
        assert [word for word in given if word.startswith(LISTEN)] == [f"{LISTEN}0.0.0.0:8080"]
        return [word for word in given if not word.startswith(LISTEN)]

    @property
    def account(self) -> str:
        """Its pod's service account."""
        return str(self.deployment["spec"]["template"]["spec"]["serviceAccountName"])

    @property
    def user(self) -> str:
        """Who its pod is to the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def kubeconfig(self) -> Path:
        """With its pod's permissions and no others."""
        return self.control_plane.user_kubeconfig(self.account, self.namespace)

    def granted(self) -> set[Permission]:
        """All that any of its roles allows."""
        return permissions(self.stored())


def only(objects: Iterable[Object], kind: str) -> Object:
    """The one object of a kind."""
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def rules(objects: Iterable[Object]) -> list[Object]:
    """Of all roles of the operator."""
    kinds = ("Role", "ClusterRole")
    roles = (one for one in objects if one["kind"] in kinds and not is_aggregated(one))
    return [rule for role in roles for rule in role["rules"]]


def is_aggregated(role: Object) -> bool:
    """Whether it is for people: a part of the cluster's own roles view, edit and admin."""
    return any(label.startswith(AGGREGATE) for label in role["metadata"]["labels"])


def permissions(objects: Iterable[Object]) -> set[Permission]:
    """What all roles together allow."""
    return {
        (group, resource, verb)
        for rule in rules(objects)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
