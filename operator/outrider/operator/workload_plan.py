"""Which objects keep a role's pods running, as the next step towards what is described. Pure.

One pod a replica: a Deployment. Several: one LeaderWorkerSet where the cluster serves them, else a
StatefulSet for each group. A role that changes from one to the other does so group by group. How
many of what to make or take away is `rollout`'s to say.
"""

import enum
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from outrider.contract.settings import Role
from outrider.operator.carriers import Carrier, Record, Standing
from outrider.operator.kinds import DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET, ObjectKind
from outrider.operator.manifests import groups, workloads
from outrider.operator.manifests.child import Object, Owner
from outrider.operator.manifests.groups import Gathering
from outrider.operator.manifests.pods import revision_of
from outrider.operator.naming import POD_INDEX, PROGRESS_ANNOTATION, WORKER_INDEX, alone, group_name
from outrider.operator.rollout import Group, RolloutStep, bounds, step
from outrider.operator.spec import Draft, Strategy, Target


class WorkloadShape(enum.StrEnum):
    """What keeps a role's pods running, by its kind."""

    DEPLOYMENT = DEPLOYMENT.name
    LEADER_WORKER_SET = LEADER_WORKER_SET.name
    STATEFUL_SETS = STATEFUL_SET.name


LEADS: Mapping[str, Mapping[str, str]] = {
    WorkloadShape.DEPLOYMENT: {},
    WorkloadShape.LEADER_WORKER_SET: {WORKER_INDEX: "0"},
    WorkloadShape.STATEFUL_SETS: {POD_INDEX: "0"},
}
"""Labels of the pod of a group that answers, beside those of its role."""


Key = tuple[str, str, int]
"""Kind and name of a carrier, and a number within it: one group."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """One role's."""

    objects: tuple[Object, ...]
    leads: Mapping[str, str]
    """Labels of the pods that answer now, beside those of the role."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What is arranged, of whom, on what."""

    owner: Owner
    role: Role
    spec: Target | Draft
    shape: WorkloadShape
    template: Object
    stands: Standing

    @property
    def revision(self) -> str:
        """Of the newest pods."""
        return revision_of(self.template)

    def fresh(self, carrier: Carrier) -> bool:
        """Whether an object is of the shape, and its pods of the revision, that are wanted."""
        return carrier.fresh(self.shape.value, self.revision)


def shape(spec: Target | Draft, stands: Standing, kinds: Collection[ObjectKind]) -> WorkloadShape:
    """What is to keep a role's pods running: groups that have StatefulSets keep to them."""
    if spec.parallelism.nodes == 1:
        return WorkloadShape.DEPLOYMENT
    begun = stands.of(STATEFUL_SET.name) and not stands.of(LEADER_WORKER_SET.name)
    served = LEADER_WORKER_SET in kinds and not begun
    return WorkloadShape.LEADER_WORKER_SET if served else WorkloadShape.STATEFUL_SETS


def gathering(owner: Owner, role: Role, nodes: int, shape: WorkloadShape) -> Gathering | None:
    """How the pods of a group find each other; None: each is alone."""
    if shape is WorkloadShape.STATEFUL_SETS:
        return groups.by_stateful_set(owner, role, nodes)
    return groups.by_leader_worker_set(nodes) if shape is WorkloadShape.LEADER_WORKER_SET else None


def arranged(ground: Ground, replicas: int | None) -> Arranged:
    """What there is to be now; `replicas` None: somebody else owns the number."""
    stands, recreate = ground.stands, ground.spec.update.strategy is Strategy.RECREATE
    leaving = bool(stands.revisions - {ground.revision})
    other = any(one.kind != ground.shape for one in stands.carriers)
    changes = other or (stands.record is not None and recreate and leaving)
    if ground.shape is not WorkloadShape.STATEFUL_SETS and not changes:
        return Arranged((_whole(ground, replicas),), LEADS[ground.shape])
    number = _number(ground, replicas)
    every = [group for one in stands.carriers for group in _groups(ground, one)]
    done = step(every, bounds(number, ground.spec.update), leaving)
    return Arranged((_service(ground, number), *_carriers(ground, done)), _leads(ground, done))


def _number(ground: Ground, replicas: int | None) -> int:
    """How many groups: of those that somebody else numbers, as many as there were."""
    if replicas is not None:
        return replicas
    stands = ground.stands
    if stands.record is not None:
        return stands.record.replicas
    return sum(one.groups for one in stands.carriers) or ground.spec.first_replicas


def _groups(ground: Ground, carrier: Carrier) -> Iterator[Group[Key]]:
    for number in range(carrier.groups):
        key = (carrier.kind, carrier.name, number)
        yield Group(key, ground.fresh(carrier), number < carrier.ready)


def _service(ground: Ground, number: int) -> Object:
    seconds = ground.spec.update.progress_seconds
    record = Record(number, ground.shape.value, ground.revision, seconds)
    return groups.nodes_service(ground.owner, ground.role, record)


def _carriers(ground: Ground, done: RolloutStep[Key]) -> Iterator[Object]:
    """What stays and what is made; what is left out is deleted."""
    fresh, gone = 0, _gone(done)
    for carrier in ground.stands.carriers:
        left = carrier.groups - gone[carrier.kind, carrier.name]
        if not ground.fresh(carrier):
            if left:
                yield groups.as_it_is(carrier, left)
        elif ground.shape is not WorkloadShape.STATEFUL_SETS:
            fresh = left
        elif left:
            yield _group(ground, carrier.name, carrier.served)
    if ground.shape is not WorkloadShape.STATEFUL_SETS:
        yield _whole(ground, fresh + done.make)
        return
    for name in _names(ground, done.make):
        yield _group(ground, name)


def _names(ground: Ground, count: int) -> Iterator[str]:
    """Of new groups: first those of pods without an object, which may only be out of sight; never
    those whose pods are still on their way out."""
    taken = {one.name for one in ground.stands.carriers} | ground.stands.taken
    known = (name for name, of in ground.stands.known.items() if of == ground.revision)
    name = functools.partial(group_name, ground.owner.name, ground.role, ground.revision)
    free = dict.fromkeys((*sorted(known), *map(name, range(count + len(taken)))))
    return itertools.islice((one for one in free if one not in taken), count)


def _group(ground: Ground, name: str, served: bool = False) -> Object:
    nodes = ground.spec.parallelism.nodes
    return groups.stateful_set(ground.owner, ground.role, name, nodes, ground.template, served)


def _whole(ground: Ground, replicas: int | None) -> Object:
    owner, role, update = ground.owner, ground.role, ground.spec.update
    if ground.shape is WorkloadShape.DEPLOYMENT:
        return workloads.deployment(owner, role, ground.template, replicas, update)
    nodes = ground.spec.parallelism.nodes
    to = bounds(_number(ground, replicas), update)
    made = groups.leader_worker_set(owner, role, nodes, ground.template, replicas, to)
    made["metadata"]["annotations"][PROGRESS_ANNOTATION] = str(update.progress_seconds)
    return made


def _leads(ground: Ground, done: RolloutStep[Key]) -> Mapping[str, str]:
    """A selector picks pods of one shape: the new one's as soon as one of its groups serves. Pods
    of a Deployment bear no number: they are told from followers by being alone."""
    others = [one for one in ground.stands.carriers if one.kind != ground.shape]
    gone = _gone(done)
    stay = [one for one in others if gone[one.kind, one.name] < one.groups]
    serves = any(one.ready for one in ground.stands.of(ground.shape))
    kind = stay[0].kind if stay and not serves else ground.shape.value
    return alone(ground.role) if kind == DEPLOYMENT.name else LEADS[kind]


def _gone(done: RolloutStep[Key]) -> Counter[tuple[str, str]]:
    """How many groups of each carrier go."""
    return Counter((kind, name) for kind, name, _ in done.gone)
