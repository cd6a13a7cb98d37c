"""Rules of a draft's placement: what it leaves to its target where it has no pods of its own."""

from pydantic.alias_generators import to_snake

from outrider.operator.spec.rule import Rule

IN_TARGETS_POD = ("Colocated", "SamePod")
"""Placements of a draft that is where its target is."""
_IS_APART = "!(self.placement in ['Colocated', 'SamePod'])"


def _without(placements: tuple[str, ...], key: str, unset: str) -> Rule:
    """Return the rule that a draft of one of `placements` leaves a field out; `unset` is that in
    CEL."""
    named = ", ".join(f"'{placement}'" for placement in placements)
    return Rule(
        "spec.draft",
        f"!(self.placement in [{named}]) || ({unset})",
        f"is the target's alone where placement is {' or '.join(placements)}; leave it out",
        lambda d: d.placement not in placements or getattr(d, key) == type(getattr(d, key))(),
        f".{key}",
    )


_OWN_CONTAINER = ("image", "resources", "sharedMemorySize")
_IN_TARGETS_POD = (
    Rule(
        "spec.draft",
        f"{_IS_APART} || !has(self.replicas) || self.replicas == 1",
        "must be 1 or left out where placement is Colocated or SamePod: each target has one draft",
        lambda d: d.placement not in IN_TARGETS_POD or d.replicas in (None, 1),
        ".replicas",
    ),
    Rule(
        "spec.draft",
        f"{_IS_APART} || self.scaling.mode != 'External'",
        "must not be External where placement is Colocated or SamePod: drafts are as many as"
        " targets",
        lambda d: d.placement not in IN_TARGETS_POD or d.scaling.mode != "External",
        ".scaling.mode",
    ),
    Rule(
        "spec",
        "!has(self.draft) || !(self.draft.placement in ['Colocated', 'SamePod']) ||"
        " !has(self.speculation.draftShrink.policy) ||"
        " self.speculation.draftShrink.policy == 'Never'",
        "must be Never or left out where draft.placement is Colocated or SamePod: a pod keeps what"
        " it was given",
        lambda s: (
            s.draft is None
            or s.draft.placement not in IN_TARGETS_POD
            or s.speculation.draft_shrink.policy in (None, "Never")
        ),
        ".speculation.draftShrink.policy",
    ),
    _without(
        IN_TARGETS_POD,
        "cache",
        "self.cache.type == 'EmptyDir' && !has(self.cache.claimName) && !has(self.cache.size) &&"
        " !has(self.cache.storageClassName) && self.cache.accessMode == 'ReadWriteMany'",
    ),
    _without(
        IN_TARGETS_POD,
        "update",
        "self.update.strategy == 'RollingUpdate' && self.update.maxUnavailable == 0 &&"
        " self.update.maxSurge == 1 && self.update.progressSeconds == 1800",
    ),
    Rule(
        "spec.draft",
        f"{_IS_APART} || !has(self.podTemplate)",
        "is the target's alone where placement is Colocated or SamePod; leave it out",
        lambda d: d.placement not in IN_TARGETS_POD or d.pod_template is None,
        ".podTemplate",
    ),
)

_COLOCATED = (
    Rule(
        "spec.draft",
        "self.placement != 'Colocated' || (self.engine.device == 'Auto' &&"
        " self.engine.threads == 1 && self.engine.prefixCache &&"
        " self.engine.allReduce == 'Gather' &&"
        " !has(self.engine.maxContext) && !has(self.engine.maxRunning) &&"
        " !has(self.engine.kvMemory))",
        "only dtype may be set where placement is Colocated",
        lambda d: d.placement != "Colocated" or d.engine == type(d.engine)(dtype=d.engine.dtype),
        ".engine",
    ),
    Rule(
        "spec.draft",
        "self.placement != 'Colocated' || !("
        + " || ".join(f"has(self.{key})" for key in _OWN_CONTAINER)
        + ")",
        f"{', '.join(_OWN_CONTAINER)} are the target's alone where placement is Colocated",
        lambda d: (
            d.placement != "Colocated"
            or all(getattr(d, to_snake(key)) is None for key in _OWN_CONTAINER)
        ),
    ),
    _without(
        ("Colocated",),
        "parallelism",
        " && ".join(f"self.parallelism.{key} == 1" for key in ("tensor", "nodes")),
    ),
)

_ONE_STAGE = Rule(
    "spec",
    "!has(self.draft) || self.draft.placement != 'Colocated' ||"
    " self.target.parallelism.pipeline == 1",
    "must be 1 where draft.placement is Colocated: the leader of several stages runs no model",
    lambda s: (
        s.draft is None or s.draft.placement != "Colocated" or s.target.parallelism.pipeline == 1
    ),
    ".target.parallelism.pipeline",
)
_SAME_POD = (
    Rule(
        "spec",
        "self.speculation.link != 'SharedMemory' ||"
        " has(self.draft) && self.draft.placement == 'SamePod'",
        "must not be SharedMemory unless draft.placement is SamePod: only one pod has memory that"
        " both see",
        lambda s: (
            s.speculation.link != "SharedMemory"
            or (s.draft is not None and s.draft.placement == "SamePod")
        ),
        ".speculation.link",
    ),
    Rule(
        "spec.draft",
        "self.placement != 'SamePod' || self.parallelism.nodes == 1",
        "must be 1 where placement is SamePod: a pod is on one machine",
        lambda d: d.placement != "SamePod" or d.parallelism.nodes == 1,
        ".parallelism.nodes",
    ),
    Rule(
        "spec",
        "!has(self.draft) || self.draft.placement != 'SamePod' ||"
        " self.target.parallelism.nodes == 1",
        "must be 1 where draft.placement is SamePod: the pod with the draft is the whole replica",
        lambda s: (
            s.draft is None or s.draft.placement != "SamePod" or s.target.parallelism.nodes == 1
        ),
        ".target.parallelism.nodes",
    ),
    Rule(
        "spec",
        "!has(self.draft) || self.draft.placement != 'SamePod' ||"
        " self.target.parallelism.pipeline == 1",
        "must be 1 where draft.placement is SamePod: the pod with the draft is the whole replica",
        lambda s: (
            s.draft is None or s.draft.placement != "SamePod" or s.target.parallelism.pipeline == 1
        ),
        ".target.parallelism.pipeline",
    ),
)

PLACEMENT = (*_IN_TARGETS_POD, *_COLOCATED, _ONE_STAGE, *_SAME_POD)
"""Rules of all placements."""
