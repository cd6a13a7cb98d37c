"""Order in which targets go when their number shrinks: those with the fewest requests first.

A ReplicaSet orders its pods by an annotation. It is written in the pass that lowers the number,
before that, and at no other time: requests come and go within seconds, and each write of a pod goes
out to every node and every watch of pods.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping

from outrider.contract.settings import Role
from outrider.contract.state import State
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClusterWriter, Object
from outrider.operator.cluster.kinds import POD
from outrider.operator.manifests.replicas import shrinks
from outrider.operator.naming import DELETION_COST
from outrider.operator.observed.pods import Pod
from outrider.operator.observed.service import Observed

log = logging.getLogger(__name__)

NONE = "0"
"""Cost of a pod that has no annotation."""


def costs(observed: Observed, states: Mapping[str, State]) -> Iterator[Object]:
    """Yield the annotations that are to change, as objects to apply; `states` by the pods' uids.

    The cost of a target is the number of its requests. One that says nothing costs nothing. Groups
    of pods are in no ReplicaSet.
    """
    for pod in observed.pods_of(Role.TARGET):
        cost = _requests(states.get(pod.uid))
        if not pod.group and cost != (pod.deletion_cost or NONE):
            yield _annotated(observed.owner.namespace, pod, cost)


async def write(
    writer: ClusterWriter,
    observed: Observed,
    replicas: Mapping[Role, int | None],
    states: Mapping[str, State],
) -> None:
    """Write the costs of targets that are to be fewer; without them they go in an order that is as
    good as any."""
    if not shrinks(observed, replicas[Role.TARGET]):
        return
    writes = (writer.apply(one) for one in costs(observed, states))
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(outcome, ClusterError):
            log.warning("%s: targets go in any order: %s", observed.owner.name, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome


def _requests(state: State | None) -> str:
    return NONE if state is None else str(state.running + state.waiting)


def _annotated(namespace: str, pod: Pod, cost: str) -> Object:
    meta = {"namespace": namespace, "name": pod.name, "uid": pod.uid}
    annotations = {DELETION_COST: cost}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.name,
        "metadata": {**meta, "annotations": annotations},
    }
