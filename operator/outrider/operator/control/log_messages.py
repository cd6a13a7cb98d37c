"""Log message of one pass, and a message for each event. Pure; the caller writes them."""

from collections.abc import Iterator

from outrider.operator.control.break_even import a_day
from outrider.operator.control.inputs import Transition
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.phases import NEVER_DRAFTS, PassState
from outrider.operator.control.reasons import Hold, LoopReason, PhaseChange
from outrider.operator.control.scaling import ScalingResult, replicas
from outrider.operator.control.settings import WINDOWS, SpeculationMode

HOLDS = {
    Hold.REPLICAS_CONTESTED: "draft replicas are written by another owner and left alone",
    Hold.REPLICAS_PENDING: "draft replicas wait until the last number is reached",
    Hold.ROLLOUT_IN_PROGRESS: "draft replicas wait for the rollout",
    Hold.DRAINING: "drafts drain",
}


def describe(state: PassState, reason: LoopReason, result: ScalingResult) -> str:
    """Return the pass in one sentence."""
    if reason is LoopReason.NO_TARGETS:
        return "no target is asked for"
    if reason is LoopReason.NO_DRAFT:
        return state.settings.draftless
    clauses = [_state(state, reason)]
    if result.hold is not None:
        clauses.append(HOLDS[result.hold])
    return "; ".join([*clauses, _load(state)])


def transitions(
    before: LoopMemory, state: PassState, result: ScalingResult
) -> tuple[Transition, ...]:
    """Return the changes in the pass that began with the memory `before`."""
    return (*_drafting(before, state), *_replicas(state, result))


def _state(state: PassState, reason: LoopReason) -> str:
    memory, inputs = state.memory, state.inputs
    links = f"{inputs.links_up} of {inputs.links_expected} links up"
    if memory.phase is Phase.OFF:
        return f"drafting off for {state.now - memory.switched_at:.0f} s: {memory.because}"
    if memory.phase is Phase.WAKING:
        return f"drafts wake for {state.stayed:.0f} s: {links}"
    name = "probing" if memory.phase is Phase.PROBING else "drafting on"
    lost = f", but {links}" if reason is LoopReason.DRAFT_LOST else ""
    return f"{name} at {memory.max_rows} row{'s' if memory.max_rows > 1 else ''}{lost}"


def _load(state: PassState) -> str:
    window = state.inputs.window
    if window is None or state.blind:
        adaptive = state.settings.mode is SpeculationMode.ADAPTIVE
        return "metrics missing" + (", so all stays as it is" if adaptive else "")
    gain = ""
    if state.memory.speculate and (percent := window.gain_percent) is not None:
        gain = f"gain {percent:.0f} %, {_price(state, percent / 100, '{}, ')}"
    waiting = window.waiting_per_target
    return f"{gain}{waiting:.1f} requests waiting a target, KV {100 * window.kv_usage:.0f} % full"


def _price(state: PassState, gain: float, form: str) -> str:
    """Return what the drafts cost and bring a day in a form, or nothing where that is not known."""
    drafts, targets = state.memory.grown or 0, state.inputs.targets
    found = a_day(state.settings, drafts, targets, gain)
    if found is None:
        return ""
    cost, brings = found
    what = f"bring {brings:.2f}" if brings >= 0 else f"lose {-brings:.2f}"
    return form.format(f"drafts that can be given back cost {cost:.2f} a day and {what}")


def _drafting(before: LoopMemory, state: PassState) -> Iterator[Transition]:
    memory, was, now = state.memory, before.phase, state.memory.phase
    if was is now:
        return
    if now is Phase.OFF and was is not Phase.OFF:
        window, low = state.inputs.window, memory.cause is LoopReason.LOW_GAIN
        percent = None if window is None or not low else window.gain_percent
        price = "" if percent is None else _price(state, percent / 100, "; {}")
        yield Transition(PhaseChange.DRAFTING_OFF, f"drafting off: {memory.because}{price}")
    elif now is Phase.WAKING:
        why = "to probe" if memory.for_probe else "to draft again"
        yield Transition(
            PhaseChange.DRAFTS_WAKING, f"waking drafts {why}: {_why_woken(before, state)}"
        )
    elif now is Phase.PROBING:
        yield Transition(PhaseChange.PROBE_STARTED, "probing: drafts are linked")
    elif was is Phase.PROBING:
        shown = memory.evidence.words + _price(state, memory.evidence.mean, "; {}")
        yield Transition(PhaseChange.DRAFTING_ON, f"drafting stays on: a probe showed {shown}")
    else:
        static = state.settings.mode is SpeculationMode.STATIC
        why = "speculation.mode is Static" if static else "drafts are linked"
        yield Transition(PhaseChange.DRAFTING_ON, f"drafting on: {why}")


def _why_woken(before: LoopMemory, state: PassState) -> str:
    if state.memory.for_probe:
        return f"drafting off for {state.now - before.switched_at:.0f} s, {before.because}"
    if before.cause in NEVER_DRAFTS:
        return "the service asks for it"
    if not state.returns:
        return "being off gives nothing back"
    return f"there is work again in {WINDOWS} windows"


def _replicas(state: PassState, result: ScalingResult) -> Iterator[Transition]:
    draft, found = state.settings.draft, state.inputs.drafts_desired
    wanted = replicas(draft, state.memory, state.inputs.targets)
    if state.inputs.contested or found is None or wanted is None or found == wanted:
        return
    limits = f"the service allows {draft.min_replicas} to {draft.max_replicas}"
    previous = f"{wanted} is what the control loop decided on before"
    outside = not draft.min_replicas <= found <= draft.max_replicas
    because = result.because or (limits if outside else previous)
    if not state.inputs.targets:
        because = "no target is asked for"
    yield Transition(PhaseChange.DRAFTS_SCALED, f"scaled draft {found}→{wanted}: {because}")
