"""What was written and has not come back through the watches yet.

A pass may begin before the watch has told of the last one's writes. Deciding by the older view
would use a policy's version twice, or write a status again. Pure bookkeeping.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Kind and name."""
SECONDS = 10.0
"""A write that is not shown by then was undone before it was: the watches are believed again."""


@dataclass(slots=True)
class Echoes:
    """The latest writes to one service and its children."""

    _awaited: dict[Key, tuple[str, Object, float]] = field(default_factory=dict)
    """By what was written: the version that the watches showed then, the server's answer, when."""

    def wrote(self, before: Object | None, answer: Object, now: float) -> None:
        """Takes the server's answer to a write; `before` is what the watches showed then."""
        self._awaited[_key(answer)] = (_version(before), answer, now)

    def over(self, shown: Iterable[Object], now: float) -> list[Object]:
        """What the watches show, with the writes that they do not show yet."""
        found = {_key(one): one for one in shown}
        for key, (version, answer, at) in list(self._awaited.items()):
            if _version(found.get(key)) == version and now - at < SECONDS:
                found[key] = answer
            else:
                del self._awaited[key]
        return list(found.values())

    def gone(self, live: Object) -> None:
        """An object was deleted: nothing of it is awaited."""
        self._awaited.pop(_key(live), None)


def _key(one: Object) -> Key:
    return one["kind"], one["metadata"]["name"]


def _version(one: Object | None) -> str:
    """Resource version; empty where there is no object."""
    return "" if one is None else str(one["metadata"]["resourceVersion"])
