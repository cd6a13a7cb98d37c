"""Injector: lets the faults of a plan happen to a pool, and notes when."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.faults.plan import CALM_SECONDS, Fault
from bench.faults.pool import Pool


@dataclass(frozen=True, slots=True)
class Event:
    """One fault that happened, in seconds since the load began."""

    fault: Fault
    began: float
    returned: float
    """Time from which on the draft can be used again."""


async def inject(
    pool: Pool, faults: Sequence[Fault], clock: Callable[[], float], seconds: float
) -> list[Event]:
    """Let faults happen in turn until `seconds` by the clock; leave out what no longer fits."""
    events: list[Event] = []
    for fault in faults:
        if clock() + fault.span + CALM_SECONDS[0] > seconds:
            break
        await asyncio.sleep(fault.calm)
        draft, began = pool.drafts[fault.draft], clock()
        print(f"{began:6.1f} s: draft {fault.draft} {fault.kind}", file=sys.stderr)
        draft.begin(fault)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            await asyncio.to_thread(draft.end, fault)
        events.append(Event(fault, began, clock()))
        print(f"{clock():6.1f} s: draft {fault.draft} back", file=sys.stderr)
    return events
