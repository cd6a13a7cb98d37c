"""Applies what a service needs, in stages: what pods start from first, deletions last.

What is refused, or fails, is recorded and holds back only workloads whose pods would start from it,
and deletions. Decides nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.cluster.kinds import (
    BY_NAME,
    CLAIM,
    CONFIG_MAP,
    DEPLOYMENT,
    KEPT,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    NETWORK_SERVICE,
    SECRET,
    SERVICE_ACCOUNT,
    ChildKey,
)
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.manifests.settings import is_settings
from outrider.operator.naming import FIELD_MANAGER, ROLE_LABEL
from outrider.operator.observed.live_workloads import orphaned
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import settings_of, template_of
from outrider.operator.observed.service import Object, Observed, child_key

SEED = f"{FIELD_MANAGER}-seed"
"""Field manager of a scaler's first number of replicas, which the operator never writes again."""
BEFORE_PODS = frozenset(
    kind.name
    for kind in (SERVICE_ACCOUNT, SECRET, CONFIG_MAP, CLAIM, NETWORK_SERVICE, NETWORK_POLICY)
)
"""Kinds that are applied before workloads: pods start from them, and the decision must be stored
before it is acted on."""
NEEDED = frozenset(kind.name for kind in (SERVICE_ACCOUNT, SECRET, CLAIM))
"""Kinds without which no pod starts, whatever they hold; of ConfigMaps the content matters too."""
TRUSTED = frozenset(kind.name for kind in (SERVICE_ACCOUNT, SECRET))
"""Kinds of which somebody else's is none: pods would act as an account, or be given a Secret, that
whoever writes the service may have no right to."""
WORKLOADS = frozenset(kind.name for kind in (DEPLOYMENT, LEADER_WORKER_SET))


@dataclass(frozen=True, slots=True)
class Apply:
    wanted: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """An object that is no longer wanted."""

    live: Object


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object of a wanted name with another owner; it is left alone."""

    live: Object


Action = Apply | Delete | Foreign


def changes(
    observed: Observed, wanted: Sequence[Object], applied: AppliedCache
) -> Iterator[Action]:
    """Yield what makes the children as wanted: apply what differs, delete what is left over."""
    for one in wanted:
        live = observed.children.get(child_key(one))
        if live is None:
            yield Apply(one)
        elif not observed.owns(live) and not orphaned(live, observed.owner):
            yield Foreign(live)
        elif not applied.same(one, live):
            yield Apply(one)
    names: set[ChildKey] = {child_key(one) for one in wanted}
    named = {name for one in wanted for name in settings_of(template_of(one))}
    for key, live in observed.children.items():
        if (
            key not in names
            and BY_NAME[live["kind"]] not in KEPT
            and (observed.owns(live) or _is_left(live, observed.owner))
            and not _leaving(live)
            and not _in_use(live, observed, named)
        ):
            yield Delete(live)


def _is_left(live: Object, owner: Owner) -> bool:
    """True for an orphan that can be made anew; a claim holds what was fetched."""
    return orphaned(live, owner) and live["kind"] != CLAIM.name


def whose(live: Object) -> str:
    """Say whose an object is that is not this service's, as far as it tells."""
    owners = live["metadata"].get("ownerReferences", ())
    named = next((one for one in owners if one.get("controller")), next(iter(owners), None))
    return "somebody else" if named is None else f"{named['kind']} {named['name']}"


def _leaving(live: Object) -> bool:
    return "deletionTimestamp" in live["metadata"]


def _in_use(live: Object, observed: Observed, named: Collection[str]) -> bool:
    """True if pods of an older revision may still start from these settings, or new ones of a
    workload that names them."""
    meta = live["metadata"]
    if live["kind"] != CONFIG_MAP.name or not is_settings(meta["name"], observed.owner.name):
        return False
    if meta["name"] in named:
        return True
    return any(meta["name"] in pod.settings for pod in (*observed.pods, *observed.followers))


@dataclass(slots=True)
class ApplyResult:
    """Objects that are not applied after a pass, and why."""

    foreign: dict[ChildKey, str] = field(default_factory=dict)
    """Objects of wanted names that have another owner, and whose they are."""
    refused: dict[ChildKey, str] = field(default_factory=dict)
    """Objects that the API server does not take, and why."""
    errors: dict[ChildKey, ClusterError] = field(default_factory=dict)
    """Why objects were refused or had no answer; they are tried again."""
    held: frozenset[ChildKey] = frozenset()
    """Objects with an error that were not tried in this pass."""
    differed: bool = field(default=False, compare=False)
    """True if an object was not as wanted before."""
    waiting: dict[ChildKey, ChildKey] = field(default_factory=dict)
    """Workloads that were left as they are, and what their pods need that was not made: old pods
    would end, and new ones could not start."""

    def is_applied(self, key: ChildKey) -> bool:
        """True if an object is as it was wanted."""
        return key not in self.unapplied

    @property
    def failed(self) -> dict[ChildKey, ClusterError]:
        """Objects for which it had no answer."""
        return {key: error for key, error in self.errors.items() if error.transient}

    @property
    def is_blocked(self) -> bool:
        """True if something could not be made, which may be why something else is still needed."""
        return bool(self.refused or self.failed or self.waiting)

    @property
    def new_failures(self) -> list[ClusterError]:
        """Why objects failed that were tried in this pass."""
        return [error for key, error in self.failed.items() if key not in self.held]

    @property
    def unapplied(self) -> frozenset[ChildKey]:
        """Objects that are not as they were wanted."""
        return frozenset((*self.refused, *self.failed, *self.foreign, *self.waiting))


@dataclass(frozen=True, slots=True)
class Applier:
    """Applies the children of one service."""

    writer: ClusterWriter
    observed: Observed
    applied: AppliedCache
    own_writes: OwnWrites
    unproven: frozenset[str] = frozenset()
    """Roles whose pods a user has described in part: their workloads are tried before anything is
    written."""
    held: Mapping[ChildKey, ClusterError] = field(default_factory=dict)
    """Objects that failed or were refused before and are not to be tried yet, and why."""

    async def apply(
        self, wanted: Sequence[Object], seeds: Mapping[ChildKey, Object]
    ) -> ApplyResult:
        """Apply what differs; `seeds` are the first versions of objects that others write later.

        Objects of one stage are written at once: `Cluster` bounds the requests in flight.
        """
        every = list(changes(self.observed, wanted, self.applied))
        actions = [one for one in every if not self._is_held(one)]
        held = [child_key(_object(one)) for one in every if self._is_held(one)]
        result = ApplyResult(held=frozenset(held), differed=bool(every))
        for key in held:
            _note(result, key, self.held[key])
        await self._try(actions, result)
        for stage in stages(one for one in actions if result.is_applied(child_key(_object(one)))):
            if result.is_blocked and isinstance(stage[0], Delete):
                break
            lacking = [one for one in wanted if self._lacks(result, one)]
            ready = list(_ready(result, stage, lacking))
            doing = (self._do(action, seeds) for action in ready)
            outcomes = await asyncio.gather(*doing, return_exceptions=True)
            for action, outcome in zip(ready, outcomes, strict=True):
                _record(result, action, outcome)
        return result

    async def _try(self, actions: Iterable[Action], result: ApplyResult) -> None:
        """Record which workloads the API server would not take."""
        tried = [one for one in actions if isinstance(one, Apply) and self._is_unproven(one.wanted)]
        asking = (self._ask(action.wanted) for action in tried)
        for action, outcome in zip(tried, await asyncio.gather(*asking), strict=True):
            _record(result, action, outcome)

    async def _ask(self, wanted: Object) -> ClusterError | None:
        try:
            await self.writer.dry_run(wanted)
        except ClusterError as error:
            return error
        return None

    def _is_held(self, action: Action) -> bool:
        return child_key(_object(action)) in self.held and not isinstance(action, Foreign)

    def _is_unproven(self, wanted: Object) -> bool:
        return wanted["kind"] in WORKLOADS and _role(wanted) in self.unproven

    def _lacks(self, result: ApplyResult, one: Object) -> bool:
        """True if pods would start without an object, with somebody else's, or from a decision that
        is not stored."""
        key = child_key(one)
        if one["kind"] == CONFIG_MAP.name:
            return not result.is_applied(key)
        if one["kind"] in TRUSTED and key in result.foreign:
            return True
        unmade = key in result.refused or key in result.failed
        return one["kind"] in NEEDED and unmade and key not in self.observed.children

    async def _do(self, action: Action, seeds: Mapping[ChildKey, Object]) -> Object | None:
        """Run an action; return the object in its way, if that has another owner."""
        match action:
            case Apply(wanted):
                return await self._apply(wanted, seeds)
            case Delete(live):
                await self._delete(live)
                return None
            case Foreign(live):
                return live

    async def _apply(self, wanted: Object, seeds: Mapping[ChildKey, Object]) -> Object | None:
        key, meta = child_key(wanted), wanted["metadata"]
        before = self.observed.children.get(key)
        if before is None:  # watches show only what carries the operator's label
            before = await self.writer.get(BY_NAME[wanted["kind"]], meta["namespace"], meta["name"])
            if before is not None and not self.observed.owns(before):
                return before
            if before is None and key in seeds:
                await self.writer.apply(seeds[key], manager=SEED)
        answer = await self.writer.apply(wanted)
        self.applied.learn(wanted, answer)
        self.own_writes.learn(key, self.observed.children.get(key), answer)
        return None

    async def _delete(self, live: Object) -> None:
        meta = live["metadata"]
        await self.writer.delete(
            BY_NAME[live["kind"]], meta["namespace"], meta["name"], meta["uid"]
        )
        self.applied.forget(live)
        self.own_writes.learn(child_key(live), live, None)


def stages(actions: Iterable[Action]) -> list[list[Action]]:
    """Split actions into stages: what pods start from, all else that is wanted, deletions."""
    found: tuple[list[Action], ...] = ([], [], [])
    for action in actions:
        if isinstance(action, Delete):
            found[2].append(action)
        else:
            found[0 if _object(action)["kind"] in BEFORE_PODS else 1].append(action)
    return [stage for stage in found if stage]


def _ready(
    result: ApplyResult, stage: Iterable[Action], lacking: Sequence[Object]
) -> Iterator[Action]:
    """Yield the actions that may run now; record which workloads wait, and for what."""
    for action in stage:
        one = _object(action)
        roles = ("", _role(one))  # what has no role is every role's
        lack = next((needed for needed in lacking if _role(needed) in roles), None)
        if lack is not None and one["kind"] in WORKLOADS and isinstance(action, Apply):
            result.waiting[child_key(one)] = child_key(lack)
        else:
            yield action


def _record(result: ApplyResult, action: Action, outcome: Object | BaseException | None) -> None:
    """Record the outcome of an action, None if it went well; raise what nobody expects."""
    key = child_key(_object(action))
    if isinstance(outcome, ClusterError):
        _note(result, key, outcome)
    elif isinstance(outcome, BaseException):
        raise outcome
    elif outcome is not None:
        result.foreign[key] = whose(outcome)


def _note(result: ApplyResult, key: ChildKey, error: ClusterError) -> None:
    result.errors[key] = error
    if not error.transient:
        result.refused[key] = error.reason


def _role(one: Object) -> str:
    """Return the role of an object; empty: every role's."""
    return str(one["metadata"]["labels"].get(ROLE_LABEL, ""))


def _object(action: Action) -> Object:
    return action.wanted if isinstance(action, Apply) else action.live
