"""A service with one target and one draft whose control loop turns in seconds, seen from outside.

    pair = Paired(control_plane, namespace)
    pair.apply()
    pair.until(lambda: pair.holds("Ready"), "it serves")

Reads what a user can read: the service, its children, its events. Leaves workers and the operator
to their own modules.
"""

import json
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from tests.kube.control_plane import ControlPlane

API = "apis/outrider.dev/v1alpha1"
NAME = "pair"
CONTROL = {"intervalSeconds": 1, "probeIntervalSeconds": 5}
BUSY = {"passes": 100, "drafted_passes": 100, "tokens": 200, "first_guesses": 100}
GOOD: Mapping[str, float] = {**BUSY, "first_hits": 80, "plain_seconds": 2.0, "spent_seconds": 1.0}
"""Rates of a target for which drafting pays: a gain of 200 %."""
POOR: Mapping[str, float] = {**BUSY, "first_hits": 10, "plain_seconds": 0.1, "spent_seconds": 1.0}
"""Rates of one for which it does not: 10 %."""


def spec() -> dict[str, Any]:
    """What is applied, a fresh one."""
    return {
        "target": {"model": {"uri": "file:///models/target"}, "replicas": 1},
        "draft": {
            "model": {"uri": "file:///models/draft"},
            "replicas": 1,
            "engine": {"maxRunning": 16},
            "scaling": {"mode": "Managed", "minReplicas": 0, "maxReplicas": 1},
        },
        "speculation": {"control": dict(CONTROL), "draftShrink": {"afterSeconds": 2}},
    }


@dataclass(frozen=True, slots=True)
class Paired:
    """One such service."""

    control_plane: ControlPlane
    namespace: str
    name: str = NAME

    def apply(self, wanted: Mapping[str, Any] | None = None) -> None:
        """Makes it, or makes it so."""
        service = {
            "apiVersion": "outrider.dev/v1alpha1",
            "kind": "SpeculativeService",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec() if wanted is None else wanted,
        }
        server_side = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        self.control_plane.kubectl(*server_side, stdin=json.dumps(service))

    @property
    def status(self) -> dict[str, Any]:
        """As the operator last wrote it."""
        found: dict[str, Any] = self._get(f"{API}/{{}}/speculativeservices/{self.name}")
        status: dict[str, Any] = found.get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition; empty where there is none yet."""
        every = self.status.get("conditions", ())
        return next((one for one in every if one["type"] == kind), {})

    def holds(self, kind: str, reason: str = "") -> bool:
        """Whether a condition is True, for this reason if one is given."""
        return self._stands(kind, "True", reason)

    def fails(self, kind: str, reason: str = "") -> bool:
        """Whether a condition is False, for this reason if one is given."""
        return self._stands(kind, "False", reason)

    def _stands(self, kind: str, status: str, reason: str) -> bool:
        found = self.condition(kind)
        return found.get("status") == status and reason in ("", found["reason"])

    def deployment(self, role: Role) -> dict[str, Any]:
        """A role's Deployment; empty where there is none yet."""
        return self._get(f"apis/apps/v1/{{}}/deployments/{self.name}-{role}")

    def replicas(self, role: Role) -> int:
        """What is wanted of a role; -1 where it is not there yet."""
        found = self.deployment(role)
        return int(found["spec"]["replicas"]) if found else -1

    def pods(self, role: Role) -> list[dict[str, Any]]:
        """Those of a role that are not being deleted."""
        query = f"labelSelector=outrider.dev%2Frole%3D{role}"
        found = self._get(f"api/v1/{{}}/pods?{query}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @property
    def policy(self) -> dict[str, Any]:
        """The stored one; empty where none is stored yet."""
        data = self._get(f"api/v1/{{}}/configmaps/{self.name}-intent").get("data", {})
        policy: dict[str, Any] = json.loads(data.get("policy.json", "{}"))
        return policy

    @property
    def events(self) -> list[str]:
        """Reasons of its events, in the order in which they happened."""
        found = self._get("apis/events.k8s.io/v1/{}/events")["items"]
        mine = [one for one in found if one["regarding"]["kind"] == "SpeculativeService"]
        return [one["reason"] for one in sorted(mine, key=lambda one: str(one["eventTime"]))]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until it holds; a failure shows the status."""
        try:
            self.control_plane.wait_until(holds, what)
        except AssertionError as error:
            shown = json.dumps(self.status, indent=1)
            raise AssertionError(f"{error}\npolicy: {self.policy}\n{shown}") from None

    def _get(self, path: str) -> dict[str, Any]:
        """What the API server answers; empty for what is not there."""
        where = path.format(f"namespaces/{self.namespace}")
        try:
            with self.control_plane.open(f"/{where}", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return {}
