"""A user's `podTemplate` laid over the operator's.

As a strategic merge does it: mappings join key by key, lists whose members have names join member
by member, any other list and any plain value replaces what was there. Pure.
"""

from collections.abc import Mapping
from typing import Any

KEYS = ("name", "mountPath", "containerPort", "key", "ip")
"""What members of a list are told apart by, the first that all of them have."""


def laid_over(base: Any, over: Any) -> Any:
    """`base` with everything that `over` says."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        joined = dict(base)
        for key, value in over.items():
            joined[key] = laid_over(base[key], value) if key in base else value
        return joined
    if isinstance(base, list) and isinstance(over, list):
        return _members(base, over)
    return over


def _members(base: list[Any], over: list[Any]) -> list[Any]:
    every = [*base, *over]
    keys = (
        key for key in KEYS if every and all(isinstance(m, Mapping) and key in m for m in every)
    )
    key = next(keys, None)
    if key is None:
        return list(over)
    joined = {member[key]: member for member in base}
    for member in over:
        known = joined.get(member[key])
        joined[member[key]] = member if known is None else laid_over(known, member)
    return list(joined.values())
