"""Actions of a pass on a cluster as plain data, and the ones that a service still needs. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.kinds import CONFIG_MAP, ChildKey
from outrider.operator.manifests.carriers import owned
from outrider.operator.manifests.pins import settings_of, template_of
from outrider.operator.manifests.settings import is_settings
from outrider.operator.observed import Observed, child_key

Object = Mapping[str, Any]


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


def changes(
    observed: Observed, wanted: Sequence[Object], applied: AppliedCache
) -> Iterator[Apply | Delete | Foreign]:
    """Yield what makes the children as wanted: apply what differs, delete what is left over."""
    for one in wanted:
        live = observed.children.get(child_key(one))
        if live is None:
            yield Apply(one)
        elif not ours(live, observed):
            yield Foreign(live)
        elif not applied.same(one, live):
            yield Apply(one)
    names: set[ChildKey] = {child_key(one) for one in wanted}
    named = {name for one in wanted for name in settings_of(template_of(one))}
    for key, live in observed.children.items():
        if (
            key not in names
            and ours(live, observed)
            and not _leaving(live)
            and not _in_use(live, observed, named)
        ):
            yield Delete(live)


def ours(live: Object, observed: Observed) -> bool:
    """True if an object is owned by this very service."""
    return owned(live, observed.owner)


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
