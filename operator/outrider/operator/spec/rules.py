"""Rules between fields of a service and of a scaler.

A test feeds the same objects to both forms of a rule. Leaves the rules of a draft's placement to
`placement_rules`, those of sources to `source_rules`.
"""

import re

from outrider.operator.spec.placement_rules import PLACEMENT
from outrider.operator.spec.rule import Rule
from outrider.operator.spec.source_rules import SOURCES

NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_NAME = 40
NAME_WORDS = "lower-case letters, digits and dashes, first a letter, last no dash"


def _role(role: str) -> tuple[Rule, ...]:
    """Return the rules of either role."""
    return (
        Rule(
            f"spec.{role}",
            "self.scaling.mode != 'External' || !has(self.replicas)",
            "must be left out where scaling.mode is External: the scaler has the number",
            lambda r: r.scaling.mode != "External" or r.replicas is None,
            ".replicas",
        ),
        Rule(
            f"spec.{role}.scaling",
            "self.minReplicas <= self.maxReplicas",
            "must not be more than maxReplicas",
            lambda s: s.min_replicas <= s.max_replicas,
            ".minReplicas",
        ),
        Rule(
            f"spec.{role}.parallelism",
            "self.tensor % self.nodes == 0",
            "must divide tensor",
            lambda p: p.tensor % p.nodes == 0,
            ".nodes",
        ),
        Rule(
            f"spec.{role}.engine",
            "self.device != 'GPU' || !(self.dtype in ['int8', 'int4'])",
            "int8 and int4 are for CPUs alone, and device is GPU",
            lambda e: e.device != "GPU" or e.dtype not in ("int8", "int4"),
            ".dtype",
        ),
        Rule(
            f"spec.{role}.engine",
            "self.device != 'CPU' || self.dtype != 'fp8'",
            "fp8 is for GPUs alone, and device is CPU",
            lambda e: e.device != "CPU" or e.dtype != "fp8",
            ".dtype",
        ),
        *_all_reduce(f"spec.{role}"),
        Rule(
            f"spec.{role}.model",
            "!has(self.revision) || (self.uri.startsWith('hf://') && !self.uri.contains('@'))",
            "goes with an hf:// uri that holds no @revision itself",
            lambda m: m.revision is None or (m.uri.startswith("hf://") and "@" not in m.uri),
            ".revision",
        ),
        *_cache(f"spec.{role}.cache"),
        Rule(
            f"spec.{role}.update",
            "self.strategy == 'Recreate' || !(self.maxUnavailable == 0 ||"
            " self.maxUnavailable == '0%') || !(self.maxSurge == 0 || self.maxSurge == '0%')",
            "must not be 0 where maxUnavailable is 0 and strategy is RollingUpdate",
            lambda u: (
                u.strategy == "Recreate"
                or u.max_unavailable not in (0, "0%")
                or u.max_surge not in (0, "0%")
            ),
            ".maxSurge",
        ),
    )


def _all_reduce(role: str) -> tuple[Rule, ...]:
    """Flag words travel between several GPUs of one machine."""
    return (
        Rule(
            role,
            "self.engine.allReduce == 'Gather' || self.parallelism.tensor > 1",
            "must be Gather where parallelism.tensor is 1: one rank has nothing to add up",
            lambda r: r.engine.all_reduce == "Gather" or r.parallelism.tensor > 1,
            ".engine.allReduce",
        ),
        Rule(
            role,
            "self.engine.allReduce == 'Gather' || self.parallelism.nodes == 1",
            "must be Gather where parallelism.nodes is more than 1: the others add up between the"
            " GPUs of one machine",
            lambda r: r.engine.all_reduce == "Gather" or r.parallelism.nodes == 1,
            ".engine.allReduce",
        ),
        Rule(
            f"{role}.engine",
            "self.allReduce == 'Gather' || self.device != 'CPU'",
            "must be Gather where device is CPU: the others add up between GPUs",
            lambda e: e.all_reduce == "Gather" or e.device != "CPU",
            ".allReduce",
        ),
    )


def _cache(path: str) -> tuple[Rule, ...]:
    return (
        Rule(
            path,
            "self.type == 'PersistentVolumeClaim' ||"
            " (!has(self.claimName) && !has(self.storageClassName))",
            "must be PersistentVolumeClaim where claimName or storageClassName is set",
            lambda c: (
                c.type == "PersistentVolumeClaim"
                or (c.claim_name is None and c.storage_class_name is None)
            ),
            ".type",
        ),
        Rule(
            path,
            "self.type != 'PersistentVolumeClaim' || has(self.claimName) != has(self.size)",
            "type PersistentVolumeClaim needs claimName, of one that exists, or size, of one to"
            " make, not both",
            lambda c: (
                c.type != "PersistentVolumeClaim" or (c.claim_name is None) != (c.size is None)
            ),
        ),
        Rule(
            path,
            "!has(self.claimName) || !has(self.storageClassName)",
            "goes with size, not with claimName",
            lambda c: c.claim_name is None or c.storage_class_name is None,
            ".storageClassName",
        ),
        Rule(
            path,
            "self.accessMode == 'ReadWriteMany' ||"
            " (self.type == 'PersistentVolumeClaim' && has(self.size))",
            "goes with a claim to make: type PersistentVolumeClaim, and size",
            lambda c: (
                c.access_mode == "ReadWriteMany"
                or (c.type == "PersistentVolumeClaim" and c.size is not None)
            ),
            ".accessMode",
        ),
        Rule(
            path,
            "self.type == 'EmptyDir' || oldSelf.type == 'EmptyDir' || !has(self.size) ||"
            " !has(oldSelf.size) || self.accessMode == oldSelf.accessMode",
            "of a claim that was made cannot change",
            None,
            ".accessMode",
        ),
        Rule(
            path,
            "self.type == 'EmptyDir' || oldSelf.type == 'EmptyDir' || !has(self.size) ||"
            " !has(oldSelf.size) || quantity(string(self.size)).compareTo("
            "quantity(string(oldSelf.size))) >= 0",
            "of a claim that was made cannot shrink",
            None,
            ".size",
        ),
        Rule(
            path,
            "self.type == 'EmptyDir' || oldSelf.type == 'EmptyDir' || !has(self.size) ||"
            " !has(oldSelf.size) || (has(self.storageClassName) == has(oldSelf.storageClassName) &&"
            " (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName))",
            "of a claim that was made cannot change",
            None,
            ".storageClassName",
        ),
    )


_TARGET = Rule(
    "spec.target.scaling",
    "self.mode != 'Managed'",
    "must be Static or External: Managed is for drafts",
    lambda s: s.mode != "Managed",
    ".mode",
)


_DRAFT = Rule(
    "spec.draft",
    "self.scaling.mode != 'Managed' || !has(self.replicas) ||"
    " (self.scaling.minReplicas <= self.replicas && self.replicas <= self.scaling.maxReplicas)",
    "must be from scaling.minReplicas to scaling.maxReplicas where scaling.mode is Managed",
    lambda d: (
        d.scaling.mode != "Managed"
        or d.replicas is None
        or d.scaling.min_replicas <= d.replicas <= d.scaling.max_replicas
    ),
    ".replicas",
    tolerated=True,
)


_PIPELINE = (
    Rule(
        "spec.target.parallelism",
        "self.pipeline == 1 || self.nodes == 1",
        "must be 1 where pipeline is more than 1: each stage is one pod",
        lambda p: p.pipeline == 1 or p.nodes == 1,
        ".nodes",
    ),
    Rule(
        "spec.target",
        "self.parallelism.pipeline == 1 || self.engine.device != 'GPU'",
        "must not be GPU where parallelism.pipeline is more than 1: stages compute on CPUs",
        lambda t: t.parallelism.pipeline == 1 or t.engine.device != "GPU",
        ".engine.device",
    ),
    Rule(
        "spec.target",
        "!has(self.pipeline.cut) || self.pipeline.cut.size() == self.parallelism.pipeline",
        "must have one number for each of the stages that parallelism.pipeline says",
        lambda t: t.pipeline.cut is None or len(t.pipeline.cut) == t.parallelism.pipeline,
        ".pipeline.cut",
    ),
)


_SPECULATION = (
    Rule(
        "spec.speculation",
        "!has(self.enable.gainAbovePercent) || !has(self.disable.gainBelowPercent) ||"
        " self.enable.gainAbovePercent > self.disable.gainBelowPercent",
        "must be more than disable.gainBelowPercent",
        lambda s: (
            s.enable.gain_above_percent is None
            or s.disable.gain_below_percent is None
            or s.enable.gain_above_percent > s.disable.gain_below_percent
        ),
        ".enable.gainAbovePercent",
    ),
    Rule(
        "spec.speculation",
        "self.enable.queueBelow < self.disable.queueAbove",
        "must be less than disable.queueAbove",
        lambda s: s.enable.queue_below < s.disable.queue_above,
        ".enable.queueBelow",
    ),
    Rule(
        "spec.speculation",
        "self.enable.kvUsageBelowPercent < self.disable.kvUsageAbovePercent",
        "must be less than disable.kvUsageAbovePercent",
        lambda s: s.enable.kv_usage_below_percent < s.disable.kv_usage_above_percent,
        ".enable.kvUsageBelowPercent",
    ),
    Rule(
        "spec",
        "!has(self.speculation.draftShrink.policy) ||"
        " self.speculation.draftShrink.policy == 'Never' ||"
        " (has(self.draft) && self.draft.scaling.mode == 'Managed')",
        "must be Never or left out unless draft.scaling.mode is Managed",
        lambda s: (
            s.speculation.draft_shrink.policy in (None, "Never")
            or (s.draft is not None and s.draft.scaling.mode == "Managed")
        ),
        ".speculation.draftShrink.policy",
    ),
)

_METRICS = (
    Rule(
        "spec",
        "self.metrics.staleAfterSeconds > self.speculation.control.intervalSeconds",
        "must be more than speculation.control.intervalSeconds: metrics would be stale before the"
        " next look at them",
        lambda s: s.metrics.stale_after_seconds > s.speculation.control.interval_seconds,
        ".metrics.staleAfterSeconds",
        tolerated=True,
    ),
)

_NAME = Rule(
    "",
    f"self.metadata.name.size() <= {MAX_NAME} && self.metadata.name.matches('{NAME}')",
    f"must be {NAME_WORDS}, at most {MAX_NAME} characters",
    lambda s: len(s.metadata.name) <= MAX_NAME and bool(re.fullmatch(NAME, s.metadata.name)),
    ".metadata.name",
)

_OWN_NAME = Rule(
    "",
    "self.metadata.name != 'default'",
    "must not be default: a service has a ServiceAccount of its name, and each namespace has one "
    "called default that is somebody else's",
    lambda s: s.metadata.name != "default",
    ".metadata.name",
)

SERVICE = (
    _NAME,
    _OWN_NAME,
    _TARGET,
    *_role("target"),
    *_role("draft"),
    _DRAFT,
    *_PIPELINE,
    *PLACEMENT,
    *_SPECULATION,
    *SOURCES,
    *_METRICS,
)
"""Rules of a `SpeculativeService`."""

TOLERATED = tuple(rule for rule in SERVICE if rule.tolerated)
"""Rules that a service which is stored may break."""

SCALER = (
    Rule(
        "",
        "self.metadata.name == self.spec.service + '-' + self.spec.role.lowerAscii()",
        "must be the service's name, a dash and the role in lower case",
        lambda s: s.metadata.name == f"{s.spec.service}-{s.spec.role.lower()}",
        ".metadata.name",
    ),
    Rule("spec.service", "self == oldSelf", "cannot change", None),
    Rule("spec.role", "self == oldSelf", "cannot change", None),
)
"""Rules of a `SpeculativeRoleScaler`."""
