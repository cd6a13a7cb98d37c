"""A user's `podTemplate` laid over the operator's.

As a strategic merge does it: mappings join key by key, null takes a key away, lists whose members
have names join member by member, any other list and any plain value replaces what was there. Pure.
"""

from collections.abc import Mapping
from typing import Any

KEYS = ("mountPath", "containerPort", "name", "key", "ip")
"""What members of a list are told apart by, the first that all of them have: one volume may be
mounted twice, so mounts go by their path."""


def laid_over(base: Any, over: Any) -> Any:
    """`base` with everything that `over` says."""
    if isinstance(over, Mapping):
        under = base if isinstance(base, Mapping) else {}
        joined = {key: value for key, value in under.items() if over.get(key, value) is not None}
        for key, value in over.items():
            if value is not None:
                joined[key] = laid_over(joined.get(key), value)
        return joined
    if isinstance(over, list):
        return _members(base if isinstance(base, list) else [], over)
    return over


def _members(base: list[Any], over: list[Any]) -> list[Any]:
    key = next((key for key in KEYS if _tells_apart(key, base) and _tells_apart(key, over)), None)
    if key is None:
        return [laid_over(None, member) for member in over]
    joined = {member[key]: member for member in base}
    for member in over:
        joined[member[key]] = laid_over(joined.get(member[key]), member)
    return list(joined.values())


def _tells_apart(key: str, members: list[Any]) -> bool:
    found = [
        m[key] for m in members if isinstance(m, Mapping) and isinstance(m.get(key), str | int)
    ]
    return len(set(found)) == len(members)
