"""What a pass may do to a cluster, as plain data, and which of it is still to be done. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.operator.carriers import owned
from outrider.operator.differences import Applied
from outrider.operator.kinds import CONFIG_MAP
from outrider.operator.manifests.child import ChildKey
from outrider.operator.manifests.settings import is_settings
from outrider.operator.observed import Observed, child_key

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Apply:
    """Make an object so."""

    wanted: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that is no longer wanted."""

    live: Object


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object of a wanted name belongs to somebody else; it is left alone."""

    live: Object


def changes(
    seen: Observed, wanted: Sequence[Object], applied: Applied
) -> Iterator[Apply | Delete | Foreign]:
    """What makes the children as wanted: what differs is applied, what is left over deleted."""
    for one in wanted:
        live = seen.children.get(child_key(one))
        if live is None:
            yield Apply(one)
        elif not ours(live, seen):
            yield Foreign(live)
        elif not applied.same(one, live):
            yield Apply(one)
    names: set[ChildKey] = {child_key(one) for one in wanted}
    for key, live in seen.children.items():
        if key not in names and ours(live, seen) and not _leaving(live) and not _in_use(live, seen):
            yield Delete(live)


def ours(live: Object, seen: Observed) -> bool:
    """Whether an object is this very service's."""
    return owned(live, seen.owner)


def _leaving(live: Object) -> bool:
    return "deletionTimestamp" in live["metadata"]


def _in_use(live: Object, seen: Observed) -> bool:
    """Whether pods of an older revision may still start from these settings."""
    meta = live["metadata"]
    if live["kind"] != CONFIG_MAP.name or not is_settings(meta["name"], seen.owner.name):
        return False
    return any(pod.settings == meta["name"] for pod in (*seen.pods, *seen.followers))
