"""One namespace as its tests see it: objects read, made, changed and deleted by somebody.

    space.apply(service("chat"))
    space.until_condition("chat", "Ready", "True", "Serving")

Kinds are the operator's; who changes what is the test's to choose.
"""

import datetime
import json
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    GUARDED,
    POD,
    SERVICE,
    ObjectKind,
)
from outrider.operator.naming import ROLE_LABEL, SERVICE_LABEL, intent_name, role_name
from tests.kube.control_plane import ControlPlane
from tests.merge_patch import laid_over

Object = dict[str, Any]
SECONDS = 30.0
MERGE = "application/merge-patch+json"
JSON = "application/json"
NOT_FOUND = 404


class Refused(RuntimeError):
    """The API server said no; the message is its own."""


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace."""

    control_plane: ControlPlane
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints; raises `KubectlError`."""
        return self.control_plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """As a user does."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def create(self, kind: ObjectKind, document: Mapping[str, Any]) -> Object:
        """Raises `Refused`."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
        return self._ask(kind.at(self.namespace), "POST", body, JSON)

    def get(self, kind: ObjectKind, name: str) -> Object | None:
        """None where there is none."""
        try:
            return self._ask(kind.at(self.namespace, name))
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def read(self, kind: ObjectKind, name: str, subresource: str) -> Object:
        """What is under a name, as `scale`."""
        return self._ask(kind.at(self.namespace, name, subresource))

    def there(self, kind: ObjectKind, name: str) -> Object:
        """One that must be there."""
        found = self.get(kind, name)
        assert found is not None, f"there is no {kind.name} {name}"
        return found

    def items(self, kind: ObjectKind) -> list[Object]:
        """All of a kind."""
        found: list[Object] = self._ask(kind.at(self.namespace))["items"]
        return found

    def patch(
        self, kind: ObjectKind, name: str, change: Mapping[str, Any], how: str = MERGE
    ) -> Object:
        """Changes an object as somebody else than the operator; raises `Refused`."""
        where = kind.at(self.namespace, name) + "?fieldManager=somebody"
        return self._ask(where, "PATCH", change, how)

    def replace(self, kind: ObjectKind, name: str, spec: Mapping[str, Any]) -> None:
        """Gives an object another spec, whole; raises `Refused`."""
        change = [{"op": "replace", "path": "/spec", "value": spec}]
        self._ask(kind.at(self.namespace, name), "PATCH", change, "application/json-patch+json")

    def delete(self, kind: ObjectKind, name: str, propagation: str = "Background") -> None:
        """Asks for the deletion; waits for nothing."""
        body = {"propagationPolicy": propagation}
        self._ask(kind.at(self.namespace, name), "DELETE", body, JSON)

    def children(self, service: str) -> dict[tuple[str, str], Object]:
        """What carries a service's label, but for its pods, by kind and name."""
        return {
            (kind.name, one["metadata"]["name"]): one
            for kind in (*CHILDREN, *GUARDED)
            for one in self.items(kind)
            if one["metadata"].get("labels", {}).get(SERVICE_LABEL) == service
        }

    def pods(self, role: Role) -> list[Object]:
        """A role's that are not on their way out."""
        return [
            pod
            for pod in self.items(POD)
            if pod["metadata"].get("labels", {}).get(ROLE_LABEL) == role
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def set_pod_ready(self, name: str, ready: bool) -> None:
        """As a kubelet does when a probe changes its mind; raises `Refused`."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
        self.report_pod(name, {"conditions": [condition]})

    def report_pod(self, name: str, status: Mapping[str, Any]) -> None:
        """Lays something over a pod's status, as a kubelet does; raises `Refused`."""
        how = "application/strategic-merge-patch+json"
        where = POD.at(self.namespace, name, "status")
        self._ask(where, "PATCH", {"status": status}, how)

    def deployment(self, service: str, role: Role) -> Object:
        """A role's."""
        return self.there(DEPLOYMENT, role_name(service, role))

    def policy(self, service: str) -> Object:
        """The policy in force, as it is stored."""
        data = self.there(CONFIG_MAP, intent_name(service))["data"]
        policy: Object = json.loads(data["policy.json"])
        return policy

    def status(self, service: str) -> Object:
        """A service's; empty before the first pass."""
        status: Object = self.there(SERVICE, service).get("status", {})
        return status

    def condition(self, service: str, kind: str) -> Object:
        """One of a service's; empty where it was never observed."""
        found = self.status(service).get("conditions", ())
        return next((one for one in found if one["type"] == kind), {})

    def events(self, service: str) -> list[tuple[str, str, str]]:
        """Type, reason and note of those about a service, in the order of their times."""
        about = [e for e in self.items(EVENT) if e["regarding"]["name"] == service]
        about = [e for e in about if e["regarding"]["kind"] == SERVICE.name]
        about.sort(key=lambda e: str(e["eventTime"]))
        return [(e["type"], e["reason"], e["note"]) for e in about]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Polls until `holds`, within a generous time; says how all stands if it does not."""
        try:
            self.control_plane.wait_until(holds, what)
        except AssertionError as error:
            kinds = "specsvc,specscaler,deployments,pods,pvc,hpa"
            raise AssertionError(
                f"{error}\n{self._standing()}\n{self.kubectl('get', kinds)}"
            ) from None

    def _standing(self) -> str:
        lines = [
            f"{one['metadata']['name']}: {c['type']} {c['status']} {c['reason']}: {c['message']}"
            for one in self.items(SERVICE)
            for c in one.get("status", {}).get("conditions", ())
        ]
        return "\n".join(lines)

    def until_condition(
        self, service: str, kind: str, status: str, reason: str | None = None
    ) -> Object:
        """Waits until a condition is so; returns it."""

        def so() -> bool:
            found = self.condition(service, kind)
            return found.get("status") == status and reason in (None, found.get("reason"))

        self.until(so, f"{kind} is {status} {reason or ''} of {service}")
        return self.condition(service, kind)

    def until_seen(self, service: str) -> None:
        """Waits until the operator has done all that the newest description asks of objects."""

        def seen() -> bool:
            whole = self.there(SERVICE, service)
            observed = whole.get("status", {}).get("observedGeneration")
            return bool(observed == whole["metadata"]["generation"])

        self.until(seen, f"the newest generation of {service} is observed")

    def until_at_rest(self, service: str) -> None:
        """Waits until all is as described, links included."""
        self.until_seen(service)
        self.until_condition(service, "Ready", "True")
        self.until_condition(service, "Progressing", "False", "Complete")
        self.until_condition(service, "LinkEstablished", "True")
        self.until_condition(service, "MetricsAvailable", "True")

    def _ask(self, path: str, method: str = "GET", body: Any = None, how: str = JSON) -> Object:
        try:
            with self.control_plane.open(path, SECONDS, method, body, how) as answer:
                found: Object = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if method == "GET":
                raise
            raise Refused(json.loads(error.read())["message"]) from None


def service(name: str = "chat", **spec: Any) -> Object:
    """A small service whose control loop looks every second; `spec` is laid over it."""
    whole: Object = {
        "target": {"model": {"uri": "hf://org/large"}, "replicas": 1},
        "draft": {"model": {"uri": "hf://org/small"}, "replicas": 1},
        "speculation": {"control": {"intervalSeconds": 1}},
    }
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.name,
        "metadata": {"name": name},
        "spec": laid_over(whole, spec),
    }
