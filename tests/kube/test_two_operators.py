"""Two operators whose scopes overlap: one looks after a namespace, the other says it does not."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import CERTIFICATE, Role
from outrider.operator.cluster.kinds import DEPLOYMENT, LEASE, SECRET, SERVICE
from outrider.operator.naming import CLAIM_NAME, RIVAL_ANNOTATION, certificate_name
from tests.kube.api_proxy import EVENTS, ApiProxy
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space, service

NAME = "chat"
Start = Callable[[str], tuple[OperatorProcess, ApiProxy]]


@pytest.fixture
def start(
    control_plane: ControlPlane, operators: Operators, workers: PodWorkers, tmp_path: Path
) -> Iterator[Start]:
    """Starts an operator of another name, which leads, with all that it asks."""
    with contextlib.ExitStack() as proxies:

        def started(name: str) -> tuple[OperatorProcess, ApiProxy]:
            folder = tmp_path / f"proxy-{len(operators.all)}"
            proxy = proxies.enter_context(ApiProxy.started(control_plane, folder))
            scope = ("--namespace", operators.namespace, "--lease-namespace", operators.namespace)
            operator = operators.start((*scope, "--lease-name", name), proxy.kubeconfig)
            operator.wait_until_leading()
            return operator, proxy

        yield started
        for operator in operators.all:
            operator.end()


def written(proxy: ApiProxy) -> list[str]:
    """Paths of what an operator has written, but for events and its own authorities."""
    paths = (one.path for one in proxy.writes)
    own = ("/secrets", "-authorities")
    return [path for path in paths if f"/{EVENTS}" not in path and not path.endswith(own)]


def claim(space: Space) -> dict[str, Any]:
    return space.there(LEASE, CLAIM_NAME)


def holder(space: Space) -> str:
    """The name of the operator that looks after the namespace; empty: nobody does yet."""
    found = space.get(LEASE, CLAIM_NAME)
    return "" if found is None else str(found["spec"]["holderIdentity"]).rpartition("/")[2]


def certificates(space: Space) -> set[str]:
    """Certificates of the roles' pods, as their Secrets hold them."""
    secrets = (space.there(SECRET, certificate_name(NAME, role)) for role in Role)
    return {secret["data"][CERTIFICATE] for secret in secrets}


@pytest.mark.slow
def test_the_second_operator_writes_nothing_and_says_why(space: Space, start: Start) -> None:
    first, _ = start("one")
    space.apply(service(NAME))
    space.until_at_rest(NAME)
    second, proxy = start("two")
    told = ("Warning", "NamespaceClaimed")

    def refused() -> bool:
        return told in [one[:2] for one in space.events(NAME)]

    space.until(refused, "the second says that it leaves the service alone")
    (note,) = [note for _, reason, note in space.events(NAME) if reason == "NamespaceClaimed"]
    assert f"{space.namespace}/one manages" in note
    assert "is left alone" in second.said
    assert claim(space)["metadata"]["annotations"][RIVAL_ANNOTATION] == f"{space.namespace}/two"
    before = space.there(DEPLOYMENT, f"{NAME}-target")["metadata"]["generation"]
    space.patch(SERVICE, NAME, {"spec": {"target": {"image": "new:1"}}})
    space.until_at_rest(NAME)
    assert space.there(DEPLOYMENT, f"{NAME}-target")["metadata"]["generation"] == before + 1

    def said() -> bool:
        advice = space.there(SERVICE, NAME)["status"].get("advice", ())
        return any(f"{space.namespace}/two" in one for one in advice)

    space.until(said, "the status names the second operator")
    assert written(proxy) == []
    assert "is left alone" not in first.said


@pytest.mark.slow
def test_a_claim_that_is_given_up_is_taken_by_the_other_operator(
    space: Space, start: Start, workers: PodWorkers
) -> None:
    first, _ = start("one")
    space.apply(service(NAME))
    space.until_at_rest(NAME)
    second, proxy = start("two")
    space.until(lambda: "is left alone" in second.said, "the second is refused")
    former = certificates(space)
    first.stop()
    space.delete(LEASE, CLAIM_NAME)  # or wait until it has expired
    space.until(lambda: holder(space) == "two", "the second has taken it")
    space.patch(SERVICE, NAME, {"spec": {"target": {"image": "new:1"}}})
    space.until(lambda: not certificates(space) & former, "the second has signed all Secrets")
    workers.sync()
    space.until_at_rest(NAME)
    assert written(proxy) != []
    again, later = start("one")
    space.until(lambda: "is left alone" in again.said, "the first is refused now")
    assert written(later) == []
