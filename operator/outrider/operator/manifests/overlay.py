"""Merge of a user's `podTemplate` into the operator's. Pure.

Like a strategic merge: mappings join key by key, null removes a key, lists whose members have names
join member by member, any other list and any plain value replaces the old one. A volume that is
given another source loses its old one, for it may have one alone.
"""

from collections.abc import Mapping
from typing import Any

KEYS = ("mountPath", "containerPort", "name", "key", "ip")
"""Keys of members of a list, the first that all of them have: one volume may be mounted twice, so
mounts go by their path."""
VOLUMES = "volumes"


def merge(base: Any, over: Any) -> Any:
    """Return `base` with everything that `over` sets."""
    if isinstance(over, Mapping):
        under = base if isinstance(base, Mapping) else {}
        joined = {key: value for key, value in under.items() if over.get(key, value) is not None}
        for key, value in over.items():
            if value is not None:
                old = joined.get(key)
                joined[key] = merge(_keeping_sources(old, value) if key == VOLUMES else old, value)
        return joined
    if isinstance(over, list):
        return _members(base if isinstance(base, list) else [], over)
    return over


def _members(base: list[Any], over: list[Any]) -> list[Any]:
    key = next((key for key in KEYS if _is_unique(key, base) and _is_unique(key, over)), None)
    if key is None:
        return [merge(None, member) for member in over]
    joined = {member[key]: member for member in base}
    for member in over:
        joined[member[key]] = merge(joined.get(member[key]), member)
    return list(joined.values())


def _keeping_sources(base: Any, over: Any) -> Any:
    """Return volumes without those to which `over` gives a source of another kind."""
    if not isinstance(base, list) or not isinstance(over, list):
        return base
    given = {one["name"]: one for one in over if _has_text(one, "name")}
    return [one for one in base if not _has_text(one, "name") or _same_kind(one, given)]


def _same_kind(volume: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> bool:
    other = given.get(volume["name"], {}).keys() - {"name"}
    return not other or bool(other & volume.keys())


def _has_text(member: Any, key: str) -> bool:
    return isinstance(member, Mapping) and isinstance(member.get(key), str)


def _is_unique(key: str, members: list[Any]) -> bool:
    found = [
        m[key] for m in members if isinstance(m, Mapping) and isinstance(m.get(key), str | int)
    ]
    return len(set(found)) == len(members)
