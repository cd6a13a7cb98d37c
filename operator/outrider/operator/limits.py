"""The control loop's settings, as a service describes them. Pure.

The one place where fields of the description meet the loop's own words.
"""

from outrider.operator.control.settings import (
    ControlSettings,
    DisableRule,
    EnableRule,
    Mode,
    Rhythm,
    ScalingRule,
    Shrink,
)
from outrider.operator.spec import Placement, ScalingMode, SpeculativeService


def control_settings(service: SpeculativeService, sessions_per_draft: int) -> ControlSettings:
    """What the loop is told; `sessions_per_draft` is what one draft holds at once."""
    spec = service.spec
    speculation = spec.speculation
    return ControlSettings(
        mode=Mode.DISABLED if spec.draft is None else Mode(speculation.mode.value),
        max_rows=speculation.max_rows,
        disable=DisableRule(**speculation.disable.model_dump()),
        enable=EnableRule(**speculation.enable.model_dump()),
        control=Rhythm(**speculation.control.model_dump()),
        stale_after_seconds=spec.metrics.stale_after_seconds,
        draft=_scaling(service, sessions_per_draft),
    )


def _scaling(service: SpeculativeService, sessions: int) -> ScalingRule:
    draft = service.spec.draft
    if draft is None or draft.placement is Placement.COLOCATED:
        return ScalingRule(managed=False, colocated=draft is not None)
    return ScalingRule(
        managed=draft.scaling.mode is ScalingMode.MANAGED,
        min_replicas=draft.scaling.min_replicas,
        max_replicas=draft.scaling.max_replicas,
        shrink=Shrink(service.spec.shrink_policy.value),
        after_seconds=service.spec.speculation.draft_shrink.after_seconds,
        sessions_per_replica=sessions,
    )
