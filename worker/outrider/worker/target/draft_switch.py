"""Switch of a target's drafts: on where both its policy and their gain say so."""

from dataclasses import dataclass

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.speculation.switch import Switch, SwitchSettings


@dataclass(slots=True)
class DraftSwitch:
    """Whether drafts should grow."""

    policy: PolicySettings
    switch: Switch

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

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""
        return self.policy.drafts_allowed and submit.speculate and self.switch.drafting

    def rests(self, submit: Submit) -> bool:
        """True if drafts would grow for a request, were the switch not off."""
        return self.policy.drafts_allowed and submit.speculate and not self.switch.drafting


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
