"""The parts of docs/operator.md that follow from the code: conditions, metrics, flags.

The rest of that page is people's; fields and rules are `service_page`'s. `reference` writes it.
"""

import argparse
import ast
import enum
import inspect
import re
from collections.abc import Iterator
from types import MappingProxyType

from prometheus_client.metrics import MetricWrapperBase
from tools.tables import REQUIRED, table

from outrider.operator.__main__ import flags
from outrider.operator.control.reasons import LoopReason
from outrider.operator.server.metrics import OperatorMetrics, ScrapedGauge
from outrider.operator.spec.conditions import (
    REASONS,
    ConditionType,
    DegradedReason,
    DraftReason,
    LinkReason,
    MetricsReason,
    ProgressingReason,
    ReadyReason,
    TargetReason,
)

PART = re.compile(r"(<!-- (\w+): written by [^\n]+ -->\n).*?(<!-- end -->)", re.DOTALL)
"""A part of the page that follows from the code."""


def operator_page(written: str) -> str:
    """The page as it is `written`, with its parts as the code has them."""
    made = {"conditions": "\n\n".join(conditions()), "metrics": metrics(), "flags": flag_table()}
    return PART.sub(lambda part: f"{part[1]}\n{made[part[2]]}\n\n{part[3]}", written)


REMEDIES = MappingProxyType(
    {
        ConditionType.READY: {
            ReadyReason.TARGET_NOT_READY: ("Read TargetAvailable."),
            ReadyReason.ROLLING_OUT: ("Read Progressing; TargetAvailable says who answers."),
            ReadyReason.ROLLOUT_FAILED: ("Mend what Degraded says, or undo the last change."),
            ReadyReason.SUSPENDED: ("Set `suspend: Running` to bring it back."),
            ReadyReason.INVALID_SPEC: ("Mend the field; or run an operator as new as the CRDs."),
        },
        ConditionType.TARGET_AVAILABLE: {
            TargetReason.PODS_NOT_READY: (
                "Loading takes time. Else: `kubectl describe pod`, "
                "`kubectl logs POD -c prepare` and `-c main`."
            ),
            TargetReason.QUEUED: ("Nothing; see what queue it is in, such as Kueue's."),
            TargetReason.CLAIM_NOT_BOUND: (
                "Make the storage class offer these access modes, or name another in `cache`."
            ),
            TargetReason.INSUFFICIENT_CAPACITY: (
                "Add nodes, or ask for less in `target.resources`."
            ),
            TargetReason.SCALED_TO_ZERO: (
                "Raise `target.replicas`, or the scaler; or it is suspended."
            ),
        },
        ConditionType.DRAFT_AVAILABLE: {
            DraftReason.PODS_NOT_READY: (
                "As for targets, or `-c draft` in their pods; nothing is urgent."
            ),
            DraftReason.QUEUED: ("Nothing; see what queue it is in, such as Kueue's."),
            DraftReason.CLAIM_NOT_BOUND: ("As for targets."),
            DraftReason.INSUFFICIENT_CAPACITY: (
                "Add nodes, ask for less, or loosen `topology.policy`."
            ),
            DraftReason.SCALED_TO_ZERO: (
                "Nothing, if drafting need not pay now; SpeculationActive says"
                " why. `draft.scaling.minReplicas` keeps some."
            ),
        },
        ConditionType.LINK_ESTABLISHED: {
            LinkReason.PARTIALLY_CONNECTED: (
                "Wait a minute; then see whether the drafts without a link answer on port 50051."
            ),
            LinkReason.CONNECTING: ("As above; a NetworkPolicy of your own may be in the way."),
            LinkReason.REFUSED: (
                "Use a draft that has tokens of the target, and images of one version."
            ),
        },
        ConditionType.SPECULATION_ACTIVE: {
            LoopReason.NO_DRAFT: "",
            LoopReason.DISABLED_BY_USER: ("Set `speculation.mode: Adaptive` to let it come back."),
            LoopReason.LOW_GAIN: (
                "It is tried again by itself, and at once where a model, an image or a limit"
                " changes, or the annotation `outrider.dev/probe-at`. If it stays so, try another"
                " draft model; if the message names what would pay, see"
                " `speculation.disable.gainBelowPercent`."
            ),
            LoopReason.IDLE: (
                "Nothing. It comes back once there is work; "
                "`speculation.draftShrink.idleSeconds` says after how long it goes."
            ),
            LoopReason.DRAFT_STARTING: ("Wait; then read DraftAvailable and LinkEstablished."),
            LoopReason.DRAFT_LOST: ("Read DraftAvailable and LinkEstablished."),
            LoopReason.NO_TARGETS: (
                "Read TargetAvailable, and Ready, which says whether it is suspended."
            ),
            LoopReason.METRICS_UNAVAILABLE: ("Read MetricsAvailable."),
        },
        ConditionType.METRICS_AVAILABLE: {
            MetricsReason.METRICS_MISSING: (
                "See whether the named pod answers on port 50054, and whether the operator may "
                "reach it."
            ),
            MetricsReason.METRICS_STALE: ("As above."),
            MetricsReason.NO_PODS: ("Read TargetAvailable."),
        },
        ConditionType.PROGRESSING: {
            ProgressingReason.ROLLOUT_FAILED: ("Read Degraded."),
            ProgressingReason.SUSPENDED: ("Set `suspend: Running` to bring it back."),
        },
        ConditionType.DEGRADED: {
            DegradedReason.INVALID_SPEC: ("Mend the field; or run an operator as new as the CRDs."),
            DegradedReason.ROLLOUT_FAILED: ("Mend the description, or undo its last change."),
            DegradedReason.REPLICAS_CONTESTED: (
                "Take the other writer away, or set "
                "`draft.scaling.mode: External` and aim it at the scaler."
            ),
            DegradedReason.APPLY_FAILED: (
                "Mend what the message names: often an admission webhook that does not answer."
            ),
            DegradedReason.OPERATOR_FAILED: (
                "Report it with the log. Undo the last change of the service, if there was one."
            ),
            DegradedReason.FOREIGN_OBJECT: (
                "Rename the service, delete the other object, or "
                "[hand it over](#names-that-are-taken)."
            ),
            DegradedReason.PODS_FAILING: (
                "`kubectl describe pod` and `kubectl logs` of the named pod."
            ),
            DegradedReason.DRAFT_LOST: ("Read DraftAvailable and LinkEstablished."),
            DegradedReason.FORBIDDEN: (
                "Give the operator the permission, lift the quota, or mend what "
                "the message names (often a `podTemplate`)."
            ),
        },
        ConditionType.RECONCILING: {},
        ConditionType.STALLED: {},
    }
)
"""What a person may do about a reason; what is not here needs nothing."""


def conditions() -> Iterator[str]:
    """A heading and a table for each condition."""
    said = member_docs(ConditionType)
    for kind, reasons in REASONS.items():
        rows = [
            (f"`{reason}`", words, REMEDIES[kind].get(reason, ""))
            for reason, words in member_docs(reasons).items()
        ]
        head = ("reason", "what it says", "what to do")
        width = 3 if REMEDIES[kind] else 2
        shown = table(head[:width], [row[:width] for row in rows])
        yield f"### {kind}\n\n{said[kind]}\n\n{shown}"


def member_docs(kind: type[enum.StrEnum]) -> dict[str, str]:
    """The string below each member of an enumeration, by the member's value."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(above, ast.Assign) and isinstance(below, ast.Expr):
            docs[str(ast.literal_eval(above.value))] = str(ast.literal_eval(below.value))
    return docs


KINDS = (MetricWrapperBase, ScrapedGauge)
"""Types of attributes that are metrics."""


def metrics() -> str:
    """Every metric of the operator."""
    found = (one for one in vars(OperatorMetrics()).values() if isinstance(one, KINDS))
    rows = []
    for one in found:
        (family,) = one.describe()
        name = family.name + "_total" * (family.type == "counter")
        labelled = one if isinstance(one, MetricWrapperBase) else family
        labels = ", ".join(f"`{label}`" for label in labelled._labelnames)
        rows.append((f"`{name}`", family.type, labels, family.documentation))
    return table(("metric", "kind", "labels", "meaning"), rows)


def flag_table() -> str:
    """Every flag."""
    rows = []
    for action in flags()._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        shown = not action.required and isinstance(action.default, str) and action.dest in FIXED
        rest = f" [default: {action.default}]" if shown else ""
        rest = f" [{REQUIRED}]" if action.required else rest
        rows.append((f"`{action.option_strings[0]}`", f"{action.help}{rest}"))
    return table(("flag", "meaning"), rows)


FIXED = ("listen", "lease_name")
"""Flags whose defaults are the same everywhere."""
