"""Plan of a role's workload: the next step towards the description. Pure.

One pod a replica: a Deployment. Several: a LeaderWorkerSet. A role that changes from one to the
other does so replica by replica, as `rollout` says.
"""

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET
from outrider.operator.manifests import groups, workloads
from outrider.operator.manifests.child import Object
from outrider.operator.manifests.rollout import Bounds, Count, bounds, step
from outrider.operator.naming import PROGRESS_ANNOTATION, WORKER_INDEX, role_name, single_labels
from outrider.operator.observed.live_workloads import LiveWorkload, LiveWorkloads
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import revision_of
from outrider.operator.spec.pods import Strategy
from outrider.operator.spec.roles import Draft, Target


class WorkloadShape(enum.StrEnum):
    """Kinds of workloads of a role."""

    DEPLOYMENT = DEPLOYMENT.name
    LEADER_WORKER_SET = LEADER_WORKER_SET.name

    @classmethod
    def of(cls, spec: Target | Draft) -> "WorkloadShape":
        """Return the workload shape of a role."""
        return cls.DEPLOYMENT if spec.parallelism.pods == 1 else cls.LEADER_WORKER_SET

    @property
    def other(self) -> "WorkloadShape":
        """The shape that it is not."""
        (other,) = set(WorkloadShape) - {self}
        return other


LEADER_LABELS: Mapping[WorkloadShape, Mapping[str, str]] = {
    WorkloadShape.DEPLOYMENT: {},
    WorkloadShape.LEADER_WORKER_SET: {WORKER_INDEX: "0"},
}
"""Labels of the pod of a replica that answers, beside those of its role."""


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
    served: bool
    """False: the cluster does not know the kind of the role's shape."""
    template: Object
    current: LiveWorkloads

    @property
    def shape(self) -> WorkloadShape:
        """Workload shape of the role."""
        return WorkloadShape.of(self.spec)

    @property
    def revision(self) -> str:
        """Revision of the newest pods."""
        return revision_of(self.template)

    @property
    def pinned(self) -> "WorkloadInputs":
        """The same with the template that the pods have, where only the operator changes it."""
        kept = self.current.kept(self.shape.value, self.template)
        return self if kept is None else dataclasses.replace(self, template=kept)


def plan_workloads(inputs: WorkloadInputs, replicas: int | None) -> WorkloadObjects:
    """Return the objects of a role after the next step; `replicas` None: the number has another
    owner."""
    current, shape = inputs.current, inputs.shape
    old = current.of(shape.other)
    if not inputs.served:
        kept = tuple(groups.as_it_is(one, one.replicas) for one in current.workloads)
        return WorkloadObjects(kept, _picked(inputs.role, shape.other if old else shape))
    leaving = shape.other in current.pod_kinds
    recreates = inputs.spec.update.strategy is Strategy.RECREATE
    if old is None and not (recreates and leaving):
        return WorkloadObjects((_whole(inputs, replicas),), LEADER_LABELS[shape])
    number, new = _number(inputs, replicas), current.of(shape)
    to = bounds(number, inputs.spec.update)
    old_left, new_number = step(_count(old), _count(new), to, leaving)
    whole = groups.noted(_whole(inputs, new_number, surges=False), number)
    objects = (whole,) if old is None or not old_left else (groups.as_it_is(old, old_left), whole)
    answers = shape.other if old_left and not _count(new).ready else shape
    return WorkloadObjects(objects, _picked(inputs.role, answers))


def _count(live: LiveWorkload | None) -> Count:
    return Count() if live is None else Count(live.replicas, live.ready)


def _number(inputs: WorkloadInputs, replicas: int | None) -> int:
    """Return the number of replicas; where it has another owner, as many as there were."""
    if replicas is not None:
        return replicas
    newest = inputs.current.newest
    return inputs.spec.first_replicas if newest is None else newest.wanted


def _picked(role: Role, shape: WorkloadShape) -> Mapping[str, str]:
    """Return the labels of the pods that answer while there may be pods of both shapes: the new
    one's as soon as one of its replicas serves. Pods of a Deployment have no number: a label of
    single pods tells them from followers."""
    return single_labels(role) if shape is WorkloadShape.DEPLOYMENT else LEADER_LABELS[shape]


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
    name = role_name(inputs.owner.name, inputs.role)
    every = [current.groups.get(f"{name}-{number}", ()) for number in range(to.replicas)]
    old = any(pod.revision != inputs.revision for group in every for pod in group)
    serve = [bool(group) and all(pod.ready for pod in group) for group in every]
    live = current.of(inputs.shape)
    if live is not None and live.has_surge:
        whole = all(len(group) >= inputs.spec.parallelism.pods for group in every)
        needed = old or not whole or not all(serve)
    else:
        needed = old and any(serve)
    return to.surge if needed else 0
