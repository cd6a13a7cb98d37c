"""Half a life is none: silent or dead watches, and permissions that are missing, are said."""

import contextlib
import json
import urllib.error
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.access import Need, needs
from outrider.operator.cluster.kinds import GUARDED, SERVICE
from outrider.operator.cluster.leadership import Term
from tests.kube.api_proxy import ApiProxy, Asked, Killed, nobody, nothing
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import LEASE, NO_ANSWER, OperatorProcess, Operators
from tests.kube.paired import GOOD, Paired
from tests.kube.pod_workers import PodWorkers

ACCOUNT = "namespaced-operator"
FORBIDDEN = 1
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def pair(
    control_plane: ControlPlane, definitions: None, namespace: str, workers: PodWorkers
) -> Paired:
    workers.behave(Role.TARGET, rates=GOOD)
    return Paired(control_plane, namespace)


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "proxy") as proxy:
        yield proxy


def healthz(operator: OperatorProcess) -> str:
    try:
        return operator.get("/healthz")
    except urllib.error.HTTPError as error:
        with error, contextlib.suppress(*NO_ANSWER):
            return f"{error.code}: {error.read().decode()}"
    except NO_ANSWER:
        pass
    return ""


def test_watches_that_hear_nothing_are_not_healthy(
    operators: Operators, namespace: str, proxy: ApiProxy
) -> None:
    arguments = ("--namespace", namespace, "--lease-namespace", namespace)
    operator = operators.start((*arguments, "--silence-seconds", "8"), proxy.kubeconfig)
    operator.wait_until_leading()
    proxy.silent = lambda asked: asked.watches
    operators.control_plane.wait_until(lambda: healthz(operator) != "ok", "it is not healthy")
    assert "503: no watch has reported anything for" in healthz(operator)
    assert "not healthy: no watch has reported anything for" in operator.said
    proxy.silent = lambda asked: False
    operators.control_plane.wait_until(lambda: healthz(operator) == "ok", "it hears again")


@pytest.mark.slow
def test_a_watch_that_does_not_begin_is_not_healthy(operators: Operators, proxy: ApiProxy) -> None:
    proxy.refused = lambda asked: asked.method == "GET" and asked.about("services")
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    said = "503: not all watches have begun"
    operators.control_plane.wait_until(lambda: healthz(operator).startswith(said), said)
    assert "services" in operator.said, "kopf says which"


@pytest.mark.slow
def test_a_watch_that_has_ended_is_not_healthy(operators: Operators, proxy: ApiProxy) -> None:
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    operator.wait_until_leading()
    assert healthz(operator) == "ok"
    proxy.refused = lambda asked: asked.method == "GET" and asked.about("services")
    proxy.cut()
    said = "503: nobody watches services.v1@"
    operators.control_plane.wait_until(lambda: healthz(operator).startswith(said), said)
    assert "speculativeservices" not in healthz(operator)


def test_kopf_leaves_no_trace_on_objects(pair: Paired, operator: OperatorProcess) -> None:
    pair.apply()
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    kinds = "specsvc,deployments,configmaps,services,pods"
    listing = pair.control_plane.kubectl("get", kinds, "-n", pair.namespace, "-o", "json")
    for one in json.loads(listing)["items"]:
        assert "finalizers" not in one["metadata"], one["metadata"]["name"]
        assert "kopf" not in json.dumps(one)


def rule(need: Need) -> dict[str, Any]:
    """What grants it."""
    resource = need.kind.plural + (f"/{need.subresource}" if need.subresource else "")
    given = {"apiGroups": [need.kind.group], "resources": [resource], "verbs": [need.verb]}
    return given | ({"resourceNames": [need.name]} if need.name else {})


def account(control_plane: ControlPlane, namespace: str, granted: Iterable[Need]) -> Path:
    """A service account that may do this in its namespace and nothing anywhere else."""
    meta = {"name": ACCOUNT, "namespace": namespace}
    control_plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [rule(need) for need in granted],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
    )
    return control_plane.user_kubeconfig(ACCOUNT, namespace)


def test_permissions_in_one_namespace_are_enough_for_it(pair: Paired, operators: Operators) -> None:
    wanted = needs((pair.namespace,), Term(pair.namespace, LEASE, ""), GUARDED)
    user = account(pair.control_plane, pair.namespace, wanted)
    operator = operators.start(kubeconfig=user)
    operator.wait_until_leading()
    pair.apply()
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    assert healthz(operator) == "ok"
    assert "forbidden" not in operator.said.lower()


def dropped(asked: Asked) -> None:
    raise Killed


@pytest.mark.parametrize("away", [{"before": dropped}, {"busy": lambda asked: True}])
def test_an_api_server_that_is_away_is_waited_for(
    operators: Operators, proxy: ApiProxy, away: dict[str, Any]
) -> None:
    for key, what in away.items():
        setattr(proxy, key, what)
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    operators.control_plane.wait_until(
        lambda: "the API server is away, and asked again soon" in operator.said, "it says so"
    )
    assert healthz(operator) == "ok", "a restart would not bring the server back"
    proxy.before, proxy.busy = nothing, nobody
    operator.wait_until_leading()
    assert operator.lives == 1


def test_definitions_that_are_not_there_yet_are_waited_for(
    operators: Operators, proxy: ApiProxy
) -> None:
    proxy.absent = lambda asked: asked.path.endswith(SERVICE.path)
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    operators.control_plane.wait_until(
        lambda: "serves no SpeculativeServices: their CRDs" in operator.said, "it says so"
    )
    assert operator.alive
    proxy.absent = nobody
    operator.wait_until_leading()
    assert operator.lives == 1


def test_an_operator_that_waits_for_an_api_server_can_be_stopped(
    operators: Operators, proxy: ApiProxy
) -> None:
    proxy.before = dropped
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    operators.control_plane.wait_until(
        lambda: "the API server is away" in operator.said, "it says so"
    )
    assert operator.stop() == 0


def test_a_permission_that_is_missing_is_named_and_ends_the_operator(
    pair: Paired, operators: Operators
) -> None:
    every = needs((pair.namespace,), Term(pair.namespace, LEASE, ""), GUARDED)
    granted = [need for need in every if not (need.verb == "watch" and need.kind.name == "Pod")]
    user = account(pair.control_plane, pair.namespace, granted)
    operator = operators.start(kubeconfig=user)
    pair.control_plane.wait_until(lambda: not operator.alive, "it ends")
    assert operator.status == FORBIDDEN
    assert operator.tail.endswith(f"not allowed: watch pods in {pair.namespace}")
