"""Control of a target's sources of draft tokens: drafts, where both its policy and their gain say
so, and what needs no draft.
"""

from dataclasses import KW_ONLY, dataclass, field

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.speculation.gain import GainAccount
from outrider.worker.speculation.local_sources import LocalSources
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.tree.mirror_table import DRAFT, PREDICTION


@dataclass(slots=True)
class DraftSwitch:
    """Whether drafts should grow, whether other sources run, and how sure drafts may be."""

    policy: PolicySettings
    _: KW_ONLY
    account: GainAccount = field(default_factory=GainAccount)
    switch: Switch = field(init=False)
    scale: ErrorScale = field(default_factory=ErrorScale)
    local: LocalSources = field(default_factory=LocalSources)
    """Sources of nodes that need no draft."""

    def __post_init__(self) -> None:
        self.switch = Switch(self.account, 0.0, switch_settings(self.policy))
        self.local.decide(self.policy)

    @property
    def drafting(self) -> str:
        """State of the switch; `disabled` where the policy forbids drafting."""
        return self.switch.state.value if self.policy.drafts_allowed else "disabled"

    def enter(self, sequences: int, now: float) -> None:
        """Decide by the number of sequences that run from now on."""
        self.switch.enter(sequences, now)

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""
        self.account.forget_drafts()
        self.switch = Switch(self.account, now, switch_settings(self.policy))

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy; start a new switch if its thresholds change or it allows drafting again,
        because the gain measured so far is out of date."""
        allowed_again = policy.drafts_allowed and not self.policy.drafts_allowed
        changed = switch_settings(policy) != switch_settings(self.policy)
        self.policy = policy
        if allowed_again or changed:
            DraftSwitch.restart(self, now)
        self.local.decide(policy)

    @property
    def planned(self) -> str:
        """Planner's choice, as in `Finished`."""
        return ""

    def sources(self, submit: Submit) -> int:
        """Return the sources whose nodes may get rows for a request, a bit each."""
        if not submit.speculate:
            return 0
        return self.local_sources(submit) | self.wants_drafts(submit) << DRAFT

    def local_sources(self, submit: Submit) -> int:
        """Return those of them that need no draft; a request's prediction is judged by its own
        calibration alone."""
        if not (submit.speculate and self.policy.speculate):
            return 0
        return self.local.on | bool(len(submit.prediction)) << PREDICTION

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""
        return self.policy.drafts_allowed and submit.speculate and self.switch.drafting

    def rests(self, submit: Submit) -> bool:
        """True if drafts would grow for a request, were they not resting."""
        allowed = self.policy.drafts_allowed and submit.speculate
        return allowed and not self.wants_drafts(submit)

    def saw_drafting(self, plain: float, spent: float, now: float, level: bool = True) -> None:
        """Learn the seconds of a step that drafting or a rest from it decided, and those of plain
        decoding for its tokens, by the step costs; what local sources did is no gain of drafts.

        `level`: false while drafts catch up.
        """
        local = self.local.share
        self.switch.observe(plain - local.plain, spent - local.spent, now, level)

    def saw_plain(self, plain: float, spent: float, now: float) -> None:
        """Learn the seconds of decoding without any draft; arguments as of `saw_drafting`."""
        local = self.local.share
        self.account.present.add(False, plain - local.plain, spent - local.spent, now)


def switch_settings(policy: PolicySettings) -> SwitchSettings:
    """Return the gains below and above which drafting goes off and comes back."""
    return SwitchSettings(
        off_below=policy.off_below_percent / 100, on_above=policy.on_above_percent / 100
    )
