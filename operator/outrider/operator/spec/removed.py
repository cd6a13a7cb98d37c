"""Fields of a service that are gone, and what to do instead.

A service that still has one is read without it, with a sentence about it; none is refused for it.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from outrider.operator.naming import RESTARTED_ANNOTATION

_PLANNER = "there is one planner; mode Disabled is plain decoding, and maxRows bounds draft tokens"
_METRICS = "the operator reads the metrics of its pods itself"
REMOVED: Mapping[str, str] = {
    "spec.speculation.planner": _PLANNER,
    "spec.speculation.staticTable": _PLANNER,
    "spec.speculation.bandit": _PLANNER,
    "spec.metrics.source": _METRICS,
    "spec.metrics.prometheus": _METRICS,
    "spec.upgrade": "a service keeps its pods until it changes, or until its annotation "
    f"{RESTARTED_ANNOTATION} does",
}
"""What to know about each, by its path."""
SOURCES, RECYCLED = "spec.speculation.sources", "Recycled"


def without_removed(document: Mapping[Any, Any]) -> tuple[dict[Any, Any], tuple[str, ...]]:
    """Return a document without the fields that are gone, and a sentence for each that it had."""
    known: dict[Any, Any] = copy.deepcopy(dict(document))
    return known, tuple(_remove(known))


def _remove(document: dict[Any, Any]) -> Iterator[str]:
    for path, words in REMOVED.items():
        *above, key = path.split(".")
        part = _part(document, above)
        if key in part:
            del part[key]
            yield f"{path} is gone, and ignored: {words}. Leave it out."
    *above, key = SOURCES.split(".")
    part = _part(document, above)
    named = part.get(key)
    if isinstance(named, list) and RECYCLED in named:
        part[key] = [one for one in named if one != RECYCLED]
        if not part[key]:
            del part[key]
        yield f"{SOURCES}: {RECYCLED} is gone, and ignored. Leave it out."


def _part(document: Any, path: list[str]) -> dict[Any, Any]:
    """Return the mapping at a path; an empty one where there is none."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
