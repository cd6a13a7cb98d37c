"""The words of one pass: a sentence for the log, and one for each event.

Pure; leaves it to the hand where they go.
"""

from collections.abc import Iterator

from outrider.operator.control.inputs import Transition
from outrider.operator.control.memory import Memory, Phase
from outrider.operator.control.phases import Pass
from outrider.operator.control.reasons import Hold, PhaseChange, Reason
from outrider.operator.control.scaling import Scaled, replicas
from outrider.operator.control.settings import Mode
from outrider.operator.control.verdict import judge

HOLDS = {
    Hold.REPLICAS_CONTESTED: "draft replicas are written by somebody else and left alone",
    Hold.REPLICAS_PENDING: "draft replicas wait until the last number is reached",
    Hold.ROLLOUT_IN_PROGRESS: "draft replicas wait for the roll-out",
    Hold.DRAINING: "drafts drain",
}


def describe(given: Pass, reason: Reason, scaled: Scaled) -> str:
    """The pass in one sentence."""
    clauses = [_state(given, reason)]
    if scaled.hold is not None:
        clauses.append(HOLDS[scaled.hold])
    return "; ".join([*clauses, _load(given)])


def transitions(before: Memory, given: Pass, scaled: Scaled) -> tuple[Transition, ...]:
    """What happened in the pass that began with the memory `before`."""
    return (*_drafting(before, given), *_replicas(given, scaled))


def _state(given: Pass, reason: Reason) -> str:
    memory, seen = given.memory, given.seen
    links = f"{seen.links_up} of {seen.links_expected} links up"
    if memory.phase is Phase.OFF:
        return f"drafting off for {given.now - memory.switched_at:.0f} s: {memory.because}"
    if memory.phase is Phase.WAKING:
        return f"drafts wake for {given.stayed:.0f} s: {links}"
    name = "probing" if memory.phase is Phase.PROBING else "drafting on"
    lost = f", but {links}" if reason is Reason.DRAFT_LOST else ""
    return f"{name} at {_rows(memory)}{lost}"


def _load(given: Pass) -> str:
    window = given.seen.window
    if window is None or given.blind:
        held = given.settings.mode is Mode.ADAPTIVE
        return "metrics missing" + (", so all stays as it is" if held else "")
    words = judge(given.settings, window).gain_words
    gain = f"{words}, " if given.memory.speculate else ""
    waiting = window.waiting_per_target
    return f"{gain}{waiting:.1f} requests waiting a target, KV {100 * window.kv_usage:.0f} % full"


def _drafting(before: Memory, given: Pass) -> Iterator[Transition]:
    memory, was, now = given.memory, before.phase, given.memory.phase
    if was is now:
        return
    if now is Phase.OFF and was is not Phase.OFF:
        yield Transition(PhaseChange.DRAFTING_OFF, f"drafting off: {memory.because}")
    elif now is Phase.WAKING:
        why = "to probe" if memory.for_probe else "to draft again"
        yield Transition(
            PhaseChange.DRAFTS_WAKING, f"waking drafts {why}: {_why_woken(before, given)}"
        )
    elif now is Phase.PROBING:
        yield Transition(
            PhaseChange.PROBE_STARTED, f"probing at {_rows(memory)}: drafts are linked"
        )
    elif was is Phase.PROBING:
        yield Transition(
            PhaseChange.DRAFTING_ON, f"drafting stays on at {_rows(memory)}: it pays again"
        )
    else:
        static = given.settings.mode is Mode.STATIC
        why = "by the service" if static else "drafts are linked"
        yield Transition(PhaseChange.DRAFTING_ON, f"drafting on at {_rows(memory)}: {why}")


def _why_woken(before: Memory, given: Pass) -> str:
    if given.memory.for_probe:
        return f"drafting off for {given.now - before.switched_at:.0f} s, {before.because}"
    if before.cause is Reason.DISABLED_BY_USER:
        return "the service asks for it"
    return f"queue and KV quiet in {given.settings.control.up_windows} windows"


def _replicas(given: Pass, scaled: Scaled) -> Iterator[Transition]:
    draft, found = given.settings.draft, given.seen.drafts_desired
    wanted = replicas(draft, given.memory)
    if given.seen.contested or found is None or wanted is None or found == wanted:
        return
    limits = f"the service allows {draft.min_replicas} to {draft.max_replicas}"
    kept = f"{wanted} is what the control loop decided on before"
    outside = not draft.min_replicas <= found <= draft.max_replicas
    because = scaled.because or (limits if outside else kept)
    yield Transition(PhaseChange.DRAFTS_SCALED, f"scaled draft {found}→{wanted}: {because}")


def _rows(memory: Memory) -> str:
    return f"{memory.max_rows} row{'s' if memory.max_rows > 1 else ''}"
