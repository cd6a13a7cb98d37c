"""Rules of a draft's placement: what it leaves to its target where it has no pods of its own."""

from outrider.operator.spec.part import Rule

_IN_TARGETS_POD = "['Colocated', 'SamePod']"
_IS_APART = f"!(self.placement in {_IN_TARGETS_POD})"
_DRAFT_IS_APART = f"!has(self.draft) || !(self.draft.placement in {_IN_TARGETS_POD})"

DRAFT = (
    Rule(
        f"{_IS_APART} || !has(self.replicas) || self.replicas == 1",
        "must be 1 or left out where placement is Colocated or SamePod: each target has one draft",
        ".replicas",
    ),
    Rule(
        f"{_IS_APART} || self.scaling.mode != 'External'",
        "must not be External where placement is Colocated or SamePod: drafts are as many as"
        " targets",
        ".scaling.mode",
    ),
    Rule(
        f"{_IS_APART} || (!has(self.podTemplate) &&"
        " self.cache.type == 'EmptyDir' && !has(self.cache.size) &&"
        " self.update.strategy == 'RollingUpdate' && self.update.maxUnavailable in [0, 1] &&"
        " self.update.maxSurge in [0, 1] && self.update.progressSeconds == 1800)",
        "cache, podTemplate and update are the target's alone where placement is Colocated or"
        " SamePod; leave them out",
    ),
    Rule(
        "self.placement != 'Colocated' || (self.engine.device == 'Auto' &&"
        " self.engine.threads == 1 && !has(self.engine.maxContext) &&"
        " !has(self.engine.maxRunning) && !has(self.engine.kvMemory))",
        "only dtype may be set where placement is Colocated",
        ".engine",
    ),
    Rule(
        "self.placement != 'Colocated' || (!has(self.image) && !has(self.resources) &&"
        " self.parallelism.tensor == 1)",
        "image, parallelism and resources are the target's alone where placement is Colocated;"
        " leave them out",
    ),
    Rule(
        "self.placement != 'SamePod' || self.parallelism.nodes == 1",
        "must be 1 where placement is SamePod: a pod is on one machine",
        ".parallelism.nodes",
    ),
)
"""Rules of `draft`."""

SPEC = (
    Rule(
        f"{_DRAFT_IS_APART} || self.target.parallelism.pipeline == 1",
        "must be 1 where draft.placement is Colocated or SamePod: such a draft goes with a target"
        " in one piece",
        ".target.parallelism.pipeline",
    ),
    Rule(
        "!has(self.draft) || self.draft.placement != 'SamePod' ||"
        " self.target.parallelism.nodes == 1",
        "must be 1 where draft.placement is SamePod: the pod with the draft is the whole replica",
        ".target.parallelism.nodes",
    ),
    Rule(
        "!has(self.speculation.draftShrink.policy) ||"
        " self.speculation.draftShrink.policy == 'Never' || (has(self.draft) &&"
        f" !(self.draft.placement in {_IN_TARGETS_POD}) && self.draft.scaling.mode == 'Managed')",
        "must be Never or left out unless draft.scaling.mode is Managed and draft.placement is"
        " Separate or Auto",
        ".speculation.draftShrink.policy",
    ),
    Rule(
        "self.speculation.link != 'SharedMemory' ||"
        " has(self.draft) && self.draft.placement == 'SamePod'",
        "must not be SharedMemory unless draft.placement is SamePod: only one pod has memory that"
        " both see",
        ".speculation.link",
    ),
)
"""Rules of `spec` about the placement."""
