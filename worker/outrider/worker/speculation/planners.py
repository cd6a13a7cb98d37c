"""The planner and the switch that a policy names.

Leaves which policy is in force to the caller.
"""

from outrider.contract.planning import PlannerKind
from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.bandit import Bandit
from outrider.worker.speculation.planner import Goodput, Planner
from outrider.worker.speculation.static import Off, Static
from outrider.worker.speculation.switch import Switch, SwitchSettings
from outrider.worker.speculation.switch_costs import SwitchCosts


def new_planner(policy: PolicySettings, plain_rate: float, switch_costs: SwitchCosts) -> Planner:
    """Make the planner of a policy; it has seen nothing. `plain_rate`: as `Planner.plain_rate`."""
    match policy.planner:
        case PlannerKind.BANDIT:
            return Bandit(plain_rate, policy.bandit_draft_tokens, switch_costs)
        case PlannerKind.STATIC:
            return Static(plain_rate, policy.static_table)
        case PlannerKind.OFF:
            return Off(plain_rate)
        case PlannerKind.GOODPUT:
            return Goodput(plain_rate)


def switch_settings(policy: PolicySettings) -> SwitchSettings:
    """Return the gains below and above which drafting goes off and comes back.

    Only the goodput planner leaves that to the switch; beside the others it stays on.
    """
    if policy.planner is not PlannerKind.GOODPUT:
        return SwitchSettings(off_below=0.0)
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
