"""Fields of a service that are gone, and what to do instead.

A service that still has one is read without it, with a sentence about it; none is refused for it.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from outrider.operator.naming import RESTARTED_ANNOTATION

_PLANNER = "there is one planner; mode Disabled is plain decoding, and maxRows bounds draft tokens"
_WINDOWS = (
    "two bad windows turn drafting off, four good ones bring it back, and as many lie between"
)
_PRESSURE = "a Colocated draft goes off above 5 waiting requests or 80 % of KV, back under 2 and 70"
_SHARED_MEMORY = (
    "podTemplate sets another size, by a volume shared-memory (of a SamePod draft: "
    "draft-shared-memory) and its mount at /dev/shm"
)
REMOVED: Mapping[str, str] = {
    "spec.speculation.planner": _PLANNER,
    "spec.speculation.staticTable": _PLANNER,
    "spec.speculation.bandit": _PLANNER,
    "spec.metrics": "the operator reads its pods' metrics itself, and they count for four windows",
    "spec.speculation.control.downWindows": _WINDOWS,
    "spec.speculation.control.upWindows": _WINDOWS,
    "spec.speculation.control.cooldownSeconds": _WINDOWS,
    "spec.speculation.control.minPasses": "a window counts from 50 passes on",
    "spec.speculation.disable.queueAbove": _PRESSURE,
    "spec.speculation.disable.kvUsageAbovePercent": _PRESSURE,
    "spec.speculation.enable.queueBelow": _PRESSURE,
    "spec.speculation.enable.kvUsageBelowPercent": _PRESSURE,
    "spec.target.sharedMemorySize": _SHARED_MEMORY,
    "spec.draft.sharedMemorySize": _SHARED_MEMORY,
    "spec.draft.engine.prefixCache": "spec.target.engine.prefixCache is the drafts' too",
    "spec.inferencePool.endpointPicker.port": "the picker's Service answers at port 9002",
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
