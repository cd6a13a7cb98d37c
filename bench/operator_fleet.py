"""Many services on a real API server, and what is asked of it about them; `operator` measures.

Leaves the servers, the pods' workers and the operator's process to `tests.kube`.
"""

import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.naming import API_VERSION, KIND
from tests.kube.control_plane import ControlPlane

NAMESPACE, ACCOUNT = "scale", "operator"
FLOW = "outrider-operator"
DISPATCHED = "apiserver_flowcontrol_dispatched_requests_total"
ASKED = "apiserver_request_total"
REQUEST_SECONDS = 60.0
IDLE_SECONDS = 15.0
POLL_SECONDS = 0.02
ROWS = (16, 12)
"""`speculation.maxRows` before and after an edit, which restarts no pod and reaches all targets."""
MAX_ROOM = {"cpu": "10m", "memory": "16Mi"}
Object = dict[str, Any]


class Api:
    """One connection to the API server, as its administrator."""

    def __init__(self, control_plane: ControlPlane) -> None:
        place = control_plane.place
        context = ssl.create_default_context(cafile=str(place.authority.certificate))
        context.load_cert_chain(place.admin.certificate, place.admin.key)
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", place.api_port, timeout=REQUEST_SECONDS, context=context
        )
        self._used = time.monotonic()

    def ask(self, method: str, path: str, body: Object | None = None) -> bytes:
        """Return what it answers; raises `RuntimeError` if it refuses."""
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        text = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()  # the server may have; the next request opens it
        self._connection.request(method, path, text, {"Content-Type": patch})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used = time.monotonic()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {content.decode(errors='replace')}")
        return content

    def create(self, path: str, kind: str, version: str, name: str, **content: Any) -> None:
        """Make one object."""
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}
        self.ask("POST", path, body)

    def counted(self) -> "Counted":
        """Return what the API server itself has counted so far."""
        text = self.ask("GET", "/metrics").decode()
        lines = (line for line in text.splitlines(True) if line.startswith((DISPATCHED, ASKED)))
        families = text_string_to_metric_families("".join(lines))
        total, applied = 0.0, Counter[str]()
        for sample in (sample for family in families for sample in family.samples):
            if sample.labels.get("flow_schema") == FLOW:
                total += sample.value
            elif sample.name == ASKED and sample.labels["verb"] == "APPLY":
                what = f"{sample.labels['resource']}/{sample.labels['subresource']}".strip("/")
                applied[what] += int(sample.value)
        return Counted(total, applied)


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests until one moment."""

    of_operator: float
    """All of its user, watches and kopf's lists included."""
    applied: "Counter[str]"
    """Server-side applies by resource; only the operator makes any."""


def register_operator(api: Api) -> None:
    """A user for the operator, whose requests the API server counts apart; what it may do is the
    chart's matter and not measured here."""
    api.create("/api/v1/namespaces", "Namespace", "v1", NAMESPACE)
    api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", "ServiceAccount", "v1", ACCOUNT)
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    group, version = "rbac.authorization.k8s.io", "v1"
    api.create(
        f"/apis/{group}/{version}/clusterrolebindings",
        "ClusterRoleBinding",
        f"{group}/{version}",
        FLOW,
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        subjects=[subject],
    )
    account = {"name": ACCOUNT, "namespace": NAMESPACE}
    everything = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [
            {
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "namespaces": ["*"],
                "clusterScope": True,
            }
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    api.create(
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "FlowSchema",
        "flowcontrol.apiserver.k8s.io/v1",
        FLOW,
        spec={
            "priorityLevelConfiguration": {"name": "workload-low"},  # as of all service accounts
            "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [everything],
        },
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of services."""

    ready: int
    linked: int
    settled: int
    """Of the newest generation, with drafting on and nothing in progress."""


class Services:
    """So many services, each with one target and one draft."""

    def __init__(self, api: Api, count: int) -> None:
        self._api = api
        self.names = [f"service-{number:03}" for number in range(count)]
        self._path = SERVICE.at(NAMESPACE)

    def create(self) -> Iterator[str]:
        """Make them one by one."""
        for name in self.names:
            self._api.create(self._path, KIND, API_VERSION, name, spec=spec())
            yield name

    def progress(self) -> Progress:
        """Of all of them."""
        items = json.loads(self._api.ask("GET", self._path))["items"]
        states = [_conditions(item) for item in items]
        settled = (_settled(item, state) for item, state in zip(items, states, strict=True))
        return Progress(
            ready=sum(state.get("Ready") == "True" for state in states),
            linked=sum(state.get("LinkEstablished") == "True" for state in states),
            settled=sum(settled),
        )

    def edit(self, name: str, rows: int, check: Callable[[], None]) -> float:
        """Change the ceiling of a service; seconds until its status says that it is in force."""
        began = time.monotonic()
        path = f"{self._path}/{name}"
        change = {"spec": {"speculation": {"maxRows": rows}}}
        generation = json.loads(self._api.ask("PATCH", path, change))["metadata"]["generation"]
        while not _took(json.loads(self._api.ask("GET", path)), generation):
            if time.monotonic() - began > REQUEST_SECONDS:
                raise RuntimeError(f"{name}: an edit is not in force after {REQUEST_SECONDS:.0f} s")
            check()
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began


def spec() -> Object:
    """Of one service; pods without claims or GPUs."""
    role = {
        "model": {"uri": "hf://HuggingFaceTB/SmolLM2-135M-Instruct"},
        "resources": {"requests": MAX_ROOM},
    }
    draft = {**role, "scaling": {"mode": "Managed", "minReplicas": 0, "maxReplicas": 1}}
    return {"target": role, "draft": draft, "speculation": {"maxRows": ROWS[0]}}


def _conditions(item: Object) -> dict[str, str]:
    found = item.get("status", {}).get("conditions", ())
    return {condition["type"]: condition["status"] for condition in found}


def _settled(item: Object, state: dict[str, str]) -> bool:
    newest = item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
    on = state.get("SpeculationActive") == state.get("LinkEstablished") == "True"
    return newest and on and state.get("Progressing") == "False"


def _took(item: Object, generation: int) -> bool:
    return bool(item.get("status", {}).get("observedGeneration", 0) >= generation)
