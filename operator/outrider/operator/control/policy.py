"""One pass of the control loop: from what is seen to the policy and the number of drafts.

`decide` is a function of its arguments alone: a process that stops between two passes and starts
again with the stored memory decides the same. Leaves judging a window to `verdict`, the way from
on to off and back to `phases`, replicas to `scaling`, words to `sentences`.
"""

import dataclasses
from typing import Any

from outrider.operator.control import phases, scaling
from outrider.operator.control.inputs import Decision, Seen
from outrider.operator.control.log_messages import describe, transitions
from outrider.operator.control.memory import (
    Memory,
    Phase,
    Present,
    UnreadableMemory,
    anew,
    loads,
)
from outrider.operator.control.phases import LINK_SECONDS, Pass
from outrider.operator.control.reasons import Reason
from outrider.operator.control.scaling import replicas
from outrider.operator.control.settings import ControlSettings, Mode


def recall(
    text: str | None, settings: ControlSettings, now: float, present: Present | None
) -> tuple[Memory, str | None]:
    """The stored memory, or a new one that holds the `present`, and what was wrong with the text.

    Beside a present, a stored version that is older than what targets follow is raised to it, or
    they would not listen.
    """
    problem = None
    try:
        memory = anew(settings, now, present) if text is None else loads(text)
    except UnreadableMemory as error:
        memory, problem = anew(settings, now, present), str(error)
    if present is not None and present.version > memory.version:
        memory = dataclasses.replace(memory, version=present.version + 1, acknowledged_at=None)
    return memory, problem


def decide(settings: ControlSettings, memory: Memory, seen: Seen, now: float) -> Decision:
    """One pass at `now`, in seconds since the epoch: the moment at which it began to look."""
    given = Pass(settings=settings, memory=memory.not_after(now), seen=seen, now=now)
    for move in (_acknowledge, scaling.adopt, phases.follow_mode, _step, _push):
        given = dataclasses.replace(given, memory=move(given))
    scaled = scaling.scale(given)
    given = dataclasses.replace(given, memory=scaled.memory)
    reason = _reason(given)
    return Decision(
        memory=given.memory,
        draft_replicas=replicas(settings.draft, given.memory),
        reason=reason,
        hold=scaled.hold,
        sentence=describe(given, reason, scaled),
        transitions=transitions(memory, given, scaled),
    )


def _acknowledge(given: Pass) -> Memory:
    """Notes when all targets were first seen to follow the last switch."""
    memory = given.memory
    if memory.acknowledged_at is not None or given.seen.acknowledged < memory.version:
        return memory
    return dataclasses.replace(memory, acknowledged_at=given.now)


def _step(given: Pass) -> Memory:
    adaptive = given.settings.mode is Mode.ADAPTIVE
    return phases.step(given) if adaptive and not given.blind else given.memory


def _push(given: Pass) -> Memory:
    """A new version where what targets are told has changed."""
    memory, most = given.memory, given.settings.max_rows
    wanted: dict[str, Any] = {
        "speculate": memory.phase in (Phase.ON, Phase.PROBING),
        "max_rows": min(memory.ceiling or most, most),
        "others": given.seen.others,
    }
    pushed = dataclasses.replace(memory, **wanted)
    if pushed == memory:
        return memory
    pushed = dataclasses.replace(pushed, version=memory.version + 1)
    if pushed.speculate == memory.speculate:
        return pushed
    return dataclasses.replace(pushed, switched_at=given.now, acknowledged_at=None)


def _reason(given: Pass) -> Reason:
    memory, settings = given.memory, given.settings
    if settings.mode is Mode.DISABLED:
        return Reason.DISABLED_BY_USER
    if settings.mode is Mode.ADAPTIVE and given.blind and not given.seen.starting:
        return Reason.METRICS_UNAVAILABLE
    if memory.phase is Phase.OFF:
        return memory.cause
    if memory.phase is Phase.PROBING:
        return Reason.PROBING
    if memory.phase is Phase.WAKING:
        waking = Reason.PROBING if memory.for_probe else Reason.DRAFT_STARTING
        late = given.stayed >= LINK_SECONDS and not given.linked
        return Reason.DRAFT_LOST if late else waking
    usable = settings.draft.colocated or given.seen.links_up > 0
    return Reason.ACTIVE if usable else Reason.DRAFT_LOST
