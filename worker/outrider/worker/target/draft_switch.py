"""Control of a target's sources of draft tokens: drafts, where both its policy and their gain say
so, and what needs no draft.

What a target learns of its drafts' times is its own: one whose passes wait for no growth learns
nothing of them.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.speculation.local_sources import LocalSources
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.tree.mirror import DRAFT


@dataclass(slots=True)
class DraftSwitch:
    """Whether drafts should grow, whether other sources run, and how sure drafts may be."""

    policy: PolicySettings
    switch: Switch
    _: KW_ONLY
    scale: ErrorScale = field(default_factory=ErrorScale)
    local: LocalSources = field(default_factory=LocalSources)
    """Sources of nodes that need no draft."""

    def __post_init__(self) -> None:
        self.local.decide(self.policy, 0.0)

    @property
    def drafting(self) -> str:
        """State of the switch; `disabled` where the policy forbids drafting."""
        return self.switch.state.value if self.policy.drafts_allowed else "disabled"

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""
        self.switch = switch_for(self.policy, now, self.switch)

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy; start a new switch if its thresholds change or it allows drafting again,
        because the gain measured so far is out of date."""
        allowed_again = policy.drafts_allowed and not self.policy.drafts_allowed
        if allowed_again or switch_settings(policy) != switch_settings(self.policy):
            self.switch = switch_for(policy, now, self.switch)
        self.policy = policy
        self.local.decide(policy, now)

    @property
    def planned(self) -> str:
        """Planner's choice, as in `Finished`."""
        return ""

    def sources(self, submit: Submit) -> int:
        """Return the sources whose nodes may get rows for a request, a bit each."""
        if not submit.speculate:
            return 0
        return self.local.on | self.wants_drafts(submit) << DRAFT

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""
        return self.policy.drafts_allowed and submit.speculate and self.switch.drafting

    def rests(self, submit: Submit) -> bool:
        """True if drafts would grow for a request, were they not resting."""
        allowed = self.policy.drafts_allowed and submit.speculate
        return allowed and not self.wants_drafts(submit)

    def saw_drafting(self, plain: float, spent: float, now: float, sequences: int = 1) -> None:
        """Learn the seconds in which so many sequences were drafted for, and those of plain
        decoding for their tokens, by the step costs; what local sources did is no gain of drafts.
        """
        lent = self.local.lent
        self.switch.observe(now, plain - lent.plain, spent - lent.spent, sequences)

    def saw_plain(self, plain: float, spent: float) -> None:
        """Learn the seconds of decoding without any draft; arguments as of `saw_drafting`."""
        lent = self.local.lent
        self.switch.saw_plain(plain - lent.plain, spent - lent.spent)

    def saw_latency(self, seconds: float) -> None:
        """Learn how long after a commit the first growth that knows it comes."""

    def saw_period(self, seconds: float) -> None:
        """Learn how long after growth of a root the next comes."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn what the first growth of a root is worth."""


def switch_settings(policy: PolicySettings) -> SwitchSettings:
    """Return the gains below and above which drafting goes off and comes back."""
    return SwitchSettings(
        off_below=policy.off_below_percent / 100, on_above=policy.on_above_percent / 100
    )


def switch_for(policy: PolicySettings, now: float, before: Switch | None = None) -> Switch:
    """Make a switch with the policy's thresholds that has seen no drafting yet.

    From the one `before`, whose place it takes, it keeps what is true of the machine: the scale of
    plain decoding, and what drafting may still lose.
    """
    switch = Switch(now, switch_settings(policy))
    if before is not None:
        switch.succeed(before)
    return switch
