"""What clients make of the state of a worker."""

from outrider.client import wire
from outrider.contract.settings import Role
from outrider.protos.v1 import control_pb2


def test_a_policy_without_sources_is_that_of_a_worker_that_knows_none() -> None:
    known = control_pb2.Policy(speculate=True, sources=["suffix"])
    for policy, sources in ((control_pb2.Policy(speculate=True), ()), (known, ("suffix",))):
        state = wire.state(control_pb2.State(role=Role.TARGET.value, policy=policy))
        assert state.policy.speculate
        assert state.policy.sources == sources
