"""One pass of the control loop: from its inputs to the policy and the number of drafts.

`decide` is a function of its arguments alone: a process that stops between two passes and starts
again with the stored memory decides the same. Leaves the test of gain to `evidence`, the change
from on to off and back to `phases`, replicas to `scaling`, messages to `log_messages`.
"""

import dataclasses
from typing import Any

from outrider.contract.settings import MAX_POLICY_VERSION
from outrider.operator.control import phases, scaling
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.log_messages import describe, transitions
from outrider.operator.control.memory import (
    LoopMemory,
    Phase,
    PolicyInForce,
    UnreadableMemory,
    loads,
    new_memory,
)
from outrider.operator.control.phases import LINK_SECONDS, PassState
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.scaling import replicas
from outrider.operator.control.settings import ControlSettings, SpeculationMode


def recall(
    text: str | None, settings: ControlSettings, now: float, in_force: PolicyInForce | None
) -> tuple[LoopMemory, str | None]:
    """Return the stored memory, or a new one with the policy `in_force`, and the text's error.

    A stored version that is older than the one in force is raised above it, or targets would
    refuse it.
    """
    problem = None
    try:
        memory = new_memory(settings, now, in_force) if text is None else loads(text)
    except UnreadableMemory as error:
        memory, problem = new_memory(settings, now, in_force), str(error)
    if in_force is not None and in_force.version > memory.version:
        version = min(in_force.version + 1, MAX_POLICY_VERSION)
        memory = dataclasses.replace(memory, version=version, acknowledged_at=None)
    return memory, problem


def decide(
    settings: ControlSettings, memory: LoopMemory, inputs: ControlInputs, now: float
) -> Decision:
    """Run one pass; `now` is the time of its scrape, in seconds since the epoch."""
    state = PassState(settings=settings, memory=memory.not_after(now), inputs=inputs, now=now)
    for move in (_acknowledge, scaling.adopt, phases.forget, phases.follow_mode, _step, _push):
        state = dataclasses.replace(state, memory=move(state))
    result = scaling.scale(state)
    state = dataclasses.replace(state, memory=result.memory)
    reason = _reason(state)
    return Decision(
        memory=state.memory,
        draft_replicas=replicas(settings.draft, state.memory, inputs.targets),
        reason=reason,
        hold=result.hold,
        sentence=describe(state, reason, result),
        transitions=transitions(memory, state, result),
    )


def _acknowledge(state: PassState) -> LoopMemory:
    """Record when all targets were first known to follow the last switch."""
    memory = state.memory
    if memory.acknowledged_at is not None or state.inputs.acknowledged < memory.version:
        return memory
    return dataclasses.replace(memory, acknowledged_at=state.now)


def _step(state: PassState) -> LoopMemory:
    adaptive = state.settings.mode is SpeculationMode.ADAPTIVE
    return phases.step(state) if adaptive and not state.blind else state.memory


def _push(state: PassState) -> LoopMemory:
    """Raise the version where the policy has changed."""
    memory = state.memory
    wanted: dict[str, Any] = {
        "speculate": memory.phase in (Phase.ON, Phase.PROBING),
        "max_rows": state.ceiling,
        "others": state.inputs.others,
    }
    pushed = dataclasses.replace(memory, **wanted)
    if pushed == memory:
        return memory
    pushed = dataclasses.replace(pushed, version=memory.version + 1)
    switched = pushed.speculate != memory.speculate
    if not switched and pushed.max_rows == memory.max_rows:
        return pushed
    at = state.now if switched else memory.switched_at
    return dataclasses.replace(pushed, switched_at=at, acknowledged_at=None)


def _reason(state: PassState) -> LoopReason:
    memory, settings = state.memory, state.settings
    if (cause := phases.why_never(settings)) is not None:
        return cause
    if not state.inputs.targets:
        return LoopReason.NO_TARGETS
    if settings.mode is SpeculationMode.ADAPTIVE and state.blind and not state.inputs.starting:
        return LoopReason.METRICS_UNAVAILABLE
    if memory.phase is Phase.OFF:
        return memory.cause
    if memory.phase is Phase.PROBING:
        return LoopReason.PROBING
    if memory.phase is Phase.WAKING:
        waking = LoopReason.PROBING if memory.for_probe else LoopReason.DRAFT_STARTING
        late = state.stayed >= LINK_SECONDS and not state.linked
        return LoopReason.DRAFT_LOST if late else waking
    usable = settings.draft.colocated or state.inputs.links_up > 0
    return LoopReason.ACTIVE if usable else LoopReason.DRAFT_LOST
