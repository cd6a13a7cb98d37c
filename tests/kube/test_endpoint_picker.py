"""A service behind the real endpoint picker of InferencePools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import INFERENCE_POOL, SERVICE
from tests.kube.conftest import OPERATORS, lone_operator
from tests.kube.control_plane import ControlPlane
from tests.kube.endpoint_picker import ACCOUNT, EndpointPicker, pools_known
from tests.kube.operator_process import Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2.yaml"
NAME = "smollm2-135m-instruct"
ASKED = 12
"""Requests, which chance alone would not lead to one of two."""


@pytest.fixture
def operators(
    control_plane: ControlPlane,
    definitions: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Operators]:
    """One that has found the kind."""
    with pools_known(control_plane), lone_operator(control_plane, tmp_path) as operators:
        request.node.stash[OPERATORS] = operators
        yield operators


def test_requests_go_to_the_target_with_the_shorter_queue_and_the_emptier_kv(
    operators: Operators, tmp_path: Path
) -> None:
    control_plane, namespace = operators.control_plane, operators.namespace
    space = Space(control_plane, namespace)
    wanted = yaml.safe_load(EXAMPLE.read_text())
    wanted["spec"]["target"]["replicas"] = 2
    wanted["spec"]["inferencePool"] = {"endpointPicker": {"name": ACCOUNT}}
    with (
        PodWorkers.following(control_plane, tmp_path / "workers", namespace) as workers,
        EndpointPicker.running(control_plane, tmp_path, namespace) as picker,
    ):
        space.create(SERVICE, wanted)
        space.until_condition(NAME, "Ready", "True", "Serving")
        first, second = workers.wait_for(Role.TARGET, 2)
        assert space.there(INFERENCE_POOL, NAME)["spec"]["endpointPickerRef"]["name"] == ACCOUNT
        slots = {"kv_slots": 100}
        for busy, calm in ((first, second), (second, first)):
            busy.behave(waiting=4, counters={**slots, "kv_slots_used": 90})
            calm.behave(waiting=0, counters={**slots, "kv_slots_used": 10})
            expected = {f"{calm.ip}:8000"}

            def all_go_there(expected: set[str] = expected) -> bool:
                return {picker.picks(NAME) for _ in range(ASKED)} == expected

            space.until(all_go_there, "requests go to the calm one")
