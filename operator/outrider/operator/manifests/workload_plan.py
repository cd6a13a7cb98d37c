"""Plan of a role's workload objects: the next step towards the description. Pure.

One pod a replica: a Deployment. Several: one LeaderWorkerSet where the cluster serves them, else a
StatefulSet for each group. A role that changes from one to the other does so group by group.
Leaves the number of groups to make or delete to `rollout`.
"""

import dataclasses
import enum
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET, ObjectKind
from outrider.operator.manifests import groups, workloads
from outrider.operator.manifests.carriers import Carrier, Record, RoleCarriers
from outrider.operator.manifests.child import Object, Owner
from outrider.operator.manifests.groups import GroupDiscovery
from outrider.operator.manifests.pins import revision_of
from outrider.operator.manifests.rollout import Bounds, Group, RolloutStep, bounds, step
from outrider.operator.naming import (
    POD_INDEX,
    PROGRESS_ANNOTATION,
    WORKER_INDEX,
    group_name,
    single_labels,
)
from outrider.operator.spec import Draft, Parallelism, Strategy, Target


class WorkloadShape(enum.StrEnum):
    """Kinds of workloads of a role."""

    DEPLOYMENT = DEPLOYMENT.name
    LEADER_WORKER_SET = LEADER_WORKER_SET.name
    STATEFUL_SETS = STATEFUL_SET.name


LEADER_LABELS: Mapping[str, Mapping[str, str]] = {
    WorkloadShape.DEPLOYMENT: {},
    WorkloadShape.LEADER_WORKER_SET: {WORKER_INDEX: "0"},
    WorkloadShape.STATEFUL_SETS: {POD_INDEX: "0"},
}
"""Labels of the pod of a group that answers, beside those of its role."""


Key = tuple[str, str, int]
"""Kind and name of a carrier, and a number within it: one group."""


@dataclass(frozen=True, slots=True)
class WorkloadObjects:
    """Planned objects of one role."""

    objects: tuple[Object, ...]
    leader_labels: Mapping[str, str]
    """Labels of the pods that answer now, beside those of the role."""


@dataclass(frozen=True, slots=True)
class WorkloadInputs:
    """Inputs of one role's plan."""

    owner: Owner
    role: Role
    spec: Target | Draft
    shape: WorkloadShape
    template: Object
    current: RoleCarriers

    @property
    def revision(self) -> str:
        """Revision of the newest pods."""
        return revision_of(self.template)

    @property
    def pinned(self) -> "WorkloadInputs":
        """The same with the template that the pods have, where only the operator changes it."""
        kept = self.current.kept(self.shape.value, self.template)
        return self if kept is None else dataclasses.replace(self, template=kept)

    def fresh(self, carrier: Carrier) -> bool:
        """True if an object has the wanted shape, and its pods the wanted revision."""
        return carrier.fresh(self.shape.value, self.revision)


def shape(
    spec: Target | Draft, current: RoleCarriers, kinds: Collection[ObjectKind]
) -> WorkloadShape:
    """Return the workload shape of a role; groups that have StatefulSets keep them."""
    if spec.parallelism.pods == 1:
        return WorkloadShape.DEPLOYMENT
    begun = current.of(STATEFUL_SET.name) and not current.of(LEADER_WORKER_SET.name)
    served = LEADER_WORKER_SET in kinds and not begun
    return WorkloadShape.LEADER_WORKER_SET if served else WorkloadShape.STATEFUL_SETS


def group_discovery(
    owner: Owner, role: Role, parallelism: Parallelism, shape: WorkloadShape
) -> GroupDiscovery | None:
    """Return the variables by which the pods of a group find each other; None: each is alone."""
    if shape is WorkloadShape.DEPLOYMENT:
        return None
    by_set = shape is WorkloadShape.STATEFUL_SETS
    discover = groups.by_stateful_set if by_set else groups.by_leader_worker_set
    return discover(owner, role, parallelism)


def plan_workloads(inputs: WorkloadInputs, replicas: int | None) -> WorkloadObjects:
    """Return the objects of a role after the next step; `replicas` None: the number has another
    owner."""
    current, recreate = inputs.current, inputs.spec.update.strategy is Strategy.RECREATE
    leaving = bool(current.revisions - {inputs.revision})
    other = any(one.kind != inputs.shape for one in current.carriers)
    changes = other or (current.record is not None and recreate and leaving)
    if inputs.shape is not WorkloadShape.STATEFUL_SETS and not changes:
        return WorkloadObjects((_whole(inputs, replicas),), LEADER_LABELS[inputs.shape])
    number = _number(inputs, replicas)
    every = [group for one in current.carriers for group in _groups(inputs, one)]
    done = step(every, bounds(number, inputs.spec.update), leaving)
    return WorkloadObjects(
        (_service(inputs, number), *_carriers(inputs, done)), _leader_labels(inputs, done)
    )


def _number(inputs: WorkloadInputs, replicas: int | None) -> int:
    """Return the number of groups; where it has another owner, as many as there were."""
    if replicas is not None:
        return replicas
    current = inputs.current
    if current.record is not None:
        return current.record.replicas
    return sum(one.groups for one in current.carriers) or inputs.spec.first_replicas


def _groups(inputs: WorkloadInputs, carrier: Carrier) -> Iterator[Group[Key]]:
    for number in range(carrier.groups):
        key = (carrier.kind, carrier.name, number)
        yield Group(key, inputs.fresh(carrier), number < carrier.ready)


def _service(inputs: WorkloadInputs, number: int) -> Object:
    seconds = inputs.spec.update.progress_seconds
    record = Record(number, inputs.shape.value, inputs.revision, seconds)
    stages = inputs.spec.parallelism.stages > 1
    return groups.nodes_service(inputs.owner, inputs.role, record, stages)


def _carriers(inputs: WorkloadInputs, done: RolloutStep[Key]) -> Iterator[Object]:
    """Yield the objects that stay and the new ones; what is left out is deleted."""
    fresh, gone = 0, _gone(done)
    for carrier in inputs.current.carriers:
        left = carrier.groups - gone[carrier.kind, carrier.name]
        if not inputs.fresh(carrier):
            if left:
                yield groups.as_it_is(carrier, left)
        elif inputs.shape is not WorkloadShape.STATEFUL_SETS:
            fresh = left
        elif left:
            yield _group(inputs, carrier.name, carrier.served)
    if inputs.shape is not WorkloadShape.STATEFUL_SETS:
        yield _whole(inputs, fresh + done.make, surges=False)
        return
    for name in _names(inputs, done.make):
        yield _group(inputs, name)


def _names(inputs: WorkloadInputs, count: int) -> Iterator[str]:
    """Yield names of new groups: first those of pods without an object, which may only be out of
    sight; never those whose pods are still being deleted."""
    taken = {one.name for one in inputs.current.carriers} | inputs.current.deleting
    known = (name for name, of in inputs.current.known.items() if of == inputs.revision)
    name = functools.partial(group_name, inputs.owner.name, inputs.role, inputs.revision)
    free = dict.fromkeys((*sorted(known), *map(name, range(count + len(taken)))))
    return itertools.islice((one for one in free if one not in taken), count)


def _group(inputs: WorkloadInputs, name: str, served: bool = False) -> Object:
    pods = inputs.spec.parallelism.pods
    return groups.stateful_set(inputs.owner, inputs.role, name, pods, inputs.template, served)


def _whole(inputs: WorkloadInputs, replicas: int | None, surges: bool = True) -> Object:
    """Return the only object of a role; `surges`: a LeaderWorkerSet may have more groups than
    `replicas` while it rolls."""
    owner, role, update = inputs.owner, inputs.role, inputs.spec.update
    if inputs.shape is WorkloadShape.DEPLOYMENT:
        return workloads.deployment(owner, role, inputs.template, replicas, update)
    pods = inputs.spec.parallelism.pods
    to = bounds(_number(inputs, replicas), update)
    more = _surge(inputs, to) if surges and replicas is not None else 0
    workload_set = groups.leader_worker_set(owner, role, pods, inputs.template, replicas, to, more)
    workload_set["metadata"]["annotations"][PROGRESS_ANNOTATION] = str(update.progress_seconds)
    return workload_set


def _surge(inputs: WorkloadInputs, to: Bounds) -> int:
    """Return the groups that a LeaderWorkerSet needs beside those that are wanted: from when one
    that serves is to be replaced until all of them are new and serve."""
    current = inputs.current
    every = [current.numbered.get(number, ()) for number in range(to.replicas)]
    old = any(pod.revision != inputs.revision for group in every for pod in group)
    serve = [bool(group) and all(pod.ready for pod in group) for group in every]
    if any(one.has_surge for one in current.of(LEADER_WORKER_SET.name)):
        whole = all(len(group) >= inputs.spec.parallelism.pods for group in every)
        needed = old or not whole or not all(serve)
    else:
        needed = old and any(serve)
    return to.surge if needed else 0


def _leader_labels(inputs: WorkloadInputs, done: RolloutStep[Key]) -> Mapping[str, str]:
    """Return the labels of the pods that answer. A selector picks pods of one shape: the new one's
    as soon as one of its groups serves. Pods of a Deployment have no number: a label of single pods
    tells them from followers."""
    others = [one for one in inputs.current.carriers if one.kind != inputs.shape]
    gone = _gone(done)
    stay = [one for one in others if gone[one.kind, one.name] < one.groups]
    serves = any(one.ready for one in inputs.current.of(inputs.shape))
    kind = stay[0].kind if stay and not serves else inputs.shape.value
    return single_labels(inputs.role) if kind == DEPLOYMENT.name else LEADER_LABELS[kind]


def _gone(done: RolloutStep[Key]) -> Counter[tuple[str, str]]:
    """Return the number of groups of each carrier that go."""
    return Counter((kind, name) for kind, name, _ in done.gone)
