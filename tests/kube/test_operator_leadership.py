"""Several operators: one leads and writes, the others take over when it ends, and never before."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.settings import Role
from tests.kube.api_proxy import LEASES, ApiProxy, Asked, nobody
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import NO_ANSWER, OperatorProcess, Operators
from tests.kube.paired import GOOD, Paired
from tests.kube.pod_workers import PodWorkers

LOST = 3
LEASE_SECONDS = 8
"""Short: tests outwait it. A leader that cannot renew ends after two thirds of it."""
LOOKS = 15 / 2
"""At a lease, by a follower, within its life; counted, for a busy machine takes any time."""
Candidate = tuple[OperatorProcess, ApiProxy]


@pytest.fixture
def pair(
    control_plane: ControlPlane, definitions: None, namespace: str, workers: PodWorkers
) -> Paired:
    """Its target's gain is always another one, so that a leader has something to write."""
    workers.behave(Role.TARGET, rates=GOOD)
    return Paired(control_plane, namespace)


@pytest.fixture
def first(operators: Operators, first_proxy: ApiProxy, pair: Paired) -> Candidate:
    """Leads, and has made a service."""
    operator = start(operators, first_proxy)
    operator.wait_until_leading()
    pair.apply()
    pair.until(lambda: pair.holds("SpeculationActive", "Active"), "it drafts")
    return operator, first_proxy


@pytest.fixture
def second(operators: Operators, second_proxy: ApiProxy, first: Candidate) -> Candidate:
    """Follows."""
    operator = start(operators, second_proxy)
    operators.control_plane.wait_until(lambda: follows(operator), "it follows")
    return operator, second_proxy


@pytest.fixture
def first_proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "first") as proxy:
        yield proxy


@pytest.fixture
def second_proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "second") as proxy:
        yield proxy


def start(operators: Operators, proxy: ApiProxy) -> OperatorProcess:
    """One more, whose requests go through the proxy."""
    own = ("--namespace", operators.namespace, "--lease-namespace", operators.namespace)
    return operators.start((*own, "--lease-seconds", str(LEASE_SECONDS)), proxy.kubeconfig)


def follows(operator: OperatorProcess) -> bool:
    operator.check()
    try:
        return operator.get("/readyz") == "following"
    except NO_ANSWER:
        return False


def takes_over(pair: Paired, candidate: Candidate) -> None:
    """Waits until it leads, and does something that only a leader does."""
    operator, proxy = candidate
    operator.wait_until_leading()
    delete_intent(pair)
    pair.until(lambda: bool(pair.policy) and bool(proxy.writes), "what was deleted is made again")


def delete_intent(pair: Paired) -> None:
    """Whoever leads writes it again."""
    gone = ("configmap", f"{pair.name}-intent", "-n", pair.namespace, "--ignore-not-found")
    pair.control_plane.kubectl("delete", *gone)


def assert_one_after_the_other(first: ApiProxy, second: ApiProxy) -> None:
    """No write of the first, answered or not, after one of the second."""
    attempts = [one.at for one in first.asked if one.writes]
    assert max(attempts) < min(one.at for one in second.writes)


def test_a_killed_leader_is_followed_within_the_life_of_its_lease(
    pair: Paired, first: Candidate, second: Candidate
) -> None:
    assert not second[1].writes
    first[0].kill()
    ended = time.monotonic()
    takes_over(pair, second)
    assert_one_after_the_other(first[1], second[1])
    assert looks(second[1], since=ended) <= 2 * LOOKS


def test_a_leader_that_is_stopped_gives_the_lease_back(
    pair: Paired, first: Candidate, second: Candidate
) -> None:
    assert first[0].stop() == 0
    takes_over(pair, second)
    assert_one_after_the_other(first[1], second[1])
    released = [one for one in first[1].asked if leases(one)][-1]
    assert "holderIdentity" not in released.content["spec"]
    assert looks(second[1], since=released.at) <= 2, "nobody waited for the lease to run out"


def test_a_leader_that_is_cut_off_ends_before_another_one_writes(
    pair: Paired, first: Candidate, second: Candidate, workers: PodWorkers
) -> None:
    operator, proxy = first
    proxy.silent = lambda asked: True
    pair.until(lambda: not operator.alive, "it ends")
    assert operator.status == LOST
    assert "the lease was lost" in operator.said
    takes_over(pair, second)
    assert_one_after_the_other(proxy, second[1])


def test_a_leader_that_slept_through_its_lease_writes_nothing_more(
    pair: Paired, first: Candidate, second: Candidate, workers: PodWorkers
) -> None:
    operator, proxy = first
    pause_at_a_write(pair, first)
    takes_over(pair, second)
    workers.behave(Role.TARGET, rates={})
    proxy.silent = nobody
    operator.resume()
    pair.until(lambda: not operator.alive, "it ends")
    assert operator.status == LOST
    assert_one_after_the_other(proxy, second[1])


def pause_at_a_write(pair: Paired, candidate: Candidate) -> None:
    """Pauses it while it waits for an answer that never comes: nothing of it is on its way."""
    operator, proxy = candidate
    proxy.silent = lambda asked: asked.writes
    delete_intent(pair)
    pair.until(lambda: any(one.writes and not one.passed for one in proxy.asked), "it writes")
    operator.pause()
    proxy.cut()


def looks(proxy: ApiProxy, since: float) -> int:
    """How often a follower has looked at the lease from then on until it took it."""
    taken = next(one.at for one in proxy.asked if leases(one))
    seen = (one.at for one in proxy.asked if f"/{LEASES}" in one.path and one.method == "GET")
    return sum(since < at < taken for at in seen)


def leases(asked: Asked) -> bool:
    """Whether it is a write of the lease that was granted."""
    return f"/{LEASES}" in asked.path and asked.method == "PUT" and asked.status == 200
