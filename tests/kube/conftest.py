"""A control plane for all tests of this folder, which run inside a pod network.

`python -m tests.parts cluster` starts their pytest there.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tools import crds

from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.leader_worker_sets import LeaderWorkerSets
from tests.kube.nodes import node
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space

ELSEWHERE = sys.platform != "linux" and "CI" not in os.environ
"""Whether this is a machine that cannot have network namespaces, and need not."""
CONTROL_PLANE = pytest.StashKey[ControlPlane]()
OPERATORS = pytest.StashKey[Operators]()
LOG_LINES, MAX_COLUMNS = 5, 400


def pytest_itemcollected(item: pytest.Item) -> None:
    """Where there can be no network namespaces, they are skipped."""
    if ELSEWHERE:
        item.add_marker(
            pytest.mark.skip(reason=f"network namespaces need Linux, not {sys.platform}")
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows how the logs of the servers and of its operators end."""
    report = yield
    if report.failed and (operators := item.stash.get(OPERATORS, None)):
        for operator in operators.all:
            report.sections.append((f"end of {operator.log}", operator.tail))
    control_plane = item.config.stash.get(CONTROL_PLANE, None)
    if report.failed and control_plane:
        for server in control_plane.servers.values():
            last = [line[:MAX_COLUMNS] for line in server.tail().splitlines()[-LOG_LINES:]]
            report.sections.append((f"end of {server.log}", "\n".join(last)))
    return report


@pytest.fixture(scope="session")
def control_plane(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One for the whole run, with two ready nodes of 64 processors and 8 GPUs each."""
    with ControlPlane.started(tmp_path_factory.mktemp("control-plane")) as control_plane:
        pytestconfig.stash[CONTROL_PLANE] = control_plane
        control_plane.apply(node("node-0"), node("node-1"))
        control_plane.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
        yield control_plane


@contextlib.contextmanager
def new_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """One in which pods may be made at once; nobody waits for its deletion."""
    name = f"t-{secrets.token_hex(4)}"
    control_plane.create_namespace(name)
    yield name
    control_plane.delete_namespace(name)


@contextlib.contextmanager
def lone_operator(control_plane: ControlPlane, folder: Path) -> Iterator[Operators]:
    """A new namespace with one operator, which leads; for all tests of a module."""
    with new_namespace(control_plane) as name:
        operators = Operators(control_plane, folder, name)
        operators.start().wait_until_leading()
        yield operators
        operators.all[0].end()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace."""
    with new_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="session")
def definitions(control_plane: ControlPlane) -> None:
    """The custom resource definitions are there and served."""
    folder = str(crds.FOLDER)
    control_plane.kubectl("apply", "--server-side", "-f", folder)

    def served() -> bool:
        """Their condition Established comes a little before the server has room for objects, and
        `kubectl wait` fails at a definition that has no conditions yet."""
        try:
            control_plane.kubectl("get", "specsvc,specscaler", "-A")
        except KubectlError:
            return False
        return True

    control_plane.wait_until(served, "the definitions are served")


@pytest.fixture(scope="module")
def leader_worker_sets(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LeaderWorkerSets]:
    """The controller of LeaderWorkerSets; ask for it before an operator, or with `usefixtures`."""
    with LeaderWorkerSets.running(control_plane, tmp_path_factory.mktemp("lws")) as controller:
        yield controller


@pytest.fixture
def space(control_plane: ControlPlane, namespace: str) -> Space:
    """The test's namespace, as somebody who works in it."""
    return Space(control_plane, namespace)


@pytest.fixture
def workers(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[PodWorkers]:
    """Fake workers at the pods of the test's namespace."""
    with PodWorkers.following(control_plane, tmp_path / "workers", namespace) as workers:
        yield workers


@pytest.fixture
def operators(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    definitions: None,
    namespace: str,
    tmp_path: Path,
) -> Iterator[Operators]:
    """Starts operators of the test's namespace, as many as it wants."""
    started = request.node.stash[OPERATORS] = Operators(control_plane, tmp_path, namespace)
    yield started
    for operator in started.all:
        operator.end()


@pytest.fixture
def operator(operators: Operators) -> OperatorProcess:
    """One operator, which leads in the test's namespace."""
    started = operators.start()
    started.wait_until_leading()
    return started
