"""Ceiling of node rows: how it goes up and down while drafting is on. Pure.

It goes down by halves while gain is low and up by doubles while gain is high; in between is a dead
band. Two steps down are at least the cool-down apart. A ceiling that was lowered stays so for a
probe's interval, and twice as long each time that it had to be lowered again soon after it had
been raised: else a service that gains little at 16 rows and much at 8 would go to and fro for ever.
"""

from typing import Any

from outrider.operator.control.memory import LoopMemory
from outrider.operator.control.settings import ControlSettings

EXPLORED = 4
"""Factor by which a probe raises its ceiling: each step is a policy that all targets take, and
1, 4, 16 are three where doubles would be five."""
MAX_DOUBLINGS = 20
"""Steps down that double the wait for the next step up: by then it is years."""

Changes = dict[str, Any]
"""Changes of the memory; none where the ceiling stays."""


def raised(settings: ControlSettings, memory: LoopMemory, now: float) -> Changes:
    """Return the changes of a step up, if it is time for one."""
    waits = memory.lowered and not _stood(settings, memory, now)
    return {} if memory.ceiling is None or waits else _multiplied(settings, memory, 2, now)


def lowered(settings: ControlSettings, memory: LoopMemory, now: float) -> Changes:
    """Return the changes of a step down, if it is time for one."""
    last, cooldown = memory.lowered_at, settings.cooldown_seconds
    if memory.max_rows == 1 or (last is not None and now - last < cooldown):
        return {}
    count = 1 if _stood(settings, memory, now) else memory.lowered + 1
    return {"ceiling": memory.max_rows // 2, "lowered_at": now, "lowered": count}


def explored(settings: ControlSettings, memory: LoopMemory, now: float) -> Changes:
    """Return the changes of a probe's step up; none after a step back."""
    if memory.ceiling is None or memory.lowered:
        return {}
    return _multiplied(settings, memory, EXPLORED, now)


def stepped_back(memory: LoopMemory, now: float) -> Changes:
    """Return the changes of a probe that gained enough one step below."""
    below = max(1, memory.max_rows // EXPLORED)
    return {"ceiling": below, "lowered_at": now, "lowered": memory.lowered + 1}


def _stood(settings: ControlSettings, memory: LoopMemory, now: float) -> bool:
    """True if the ceiling has stood for as long as one that was lowered has to."""
    times = [at for at in (memory.raised_at, memory.lowered_at) if at is not None]
    doublings = min(max(0, memory.lowered - 1), MAX_DOUBLINGS)
    wait: int = settings.probe_interval_seconds << doublings
    return not times or now - max(times) >= wait


def _multiplied(settings: ControlSettings, memory: LoopMemory, factor: int, now: float) -> Changes:
    ceiling = factor * (memory.ceiling or settings.max_rows)
    whole = ceiling >= settings.max_rows
    return {"ceiling": None if whole else ceiling, "raised_at": now}
