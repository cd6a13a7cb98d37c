"""Recording rules and alerts, as the `groups` of a Prometheus rule file.

What to do about each alert is in docs/how-to/answer-alerts.md, under its name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.monitoring.queries import (
    TARGET,
    Scope,
    accepted_share,
    failed_share,
    gain,
    prefix_hits,
    tokens_per_pass,
)

from outrider.contract import metrics
from outrider.operator.server.metrics import PREFIX as OPERATOR

RUNBOOKS = "docs/how-to/answer-alerts.md"
FIVE = Scope()
TEN = Scope(window="10m")
Group = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert."""

    name: str
    expression: str
    minutes: int
    """Minutes for which the expression has to hold."""
    severity: str
    """Severity of the alert: `critical` if requests are not answered, `warning` if a person should
    look."""
    summary: str

    def rule(self) -> dict[str, Any]:
        """Return it as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": f"{self.minutes}m",
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "runbook_url": f"{RUNBOOKS}#{self.name.lower()}",
            },
        }


def groups() -> list[Group]:
    """Return all groups of the rule file."""
    recorded = [{"record": name, "expr": expression} for name, expression in records()]
    return [
        {"name": "outrider.service.records", "rules": recorded},
        {"name": "outrider.service.alerts", "rules": [one.rule() for one in SERVICE_ALERTS]},
        {"name": "outrider.operator.alerts", "rules": [one.rule() for one in OPERATOR_ALERTS]},
    ]


def records() -> Iterator[tuple[str, str]]:
    """Yield each recording rule: its name, and its expression by service."""
    yield "service:outrider_generation_tokens:rate5m", FIVE.rate(metrics.GENERATION_TOKENS)
    yield "service:outrider_prompt_tokens:rate5m", FIVE.rate(metrics.PROMPT_TOKENS)
    yield "service:outrider_request_success:rate5m", FIVE.rate(metrics.REQUEST_SUCCESS)
    yield "service:outrider_request_failures:ratio_rate5m", failed_share(FIVE, "error")
    yield (
        "service:outrider_num_requests_waiting:sum",
        FIVE.over("sum", metrics.NUM_REQUESTS_WAITING),
    )
    yield (
        "service:outrider_num_requests_running:sum",
        FIVE.over("sum", metrics.NUM_REQUESTS_RUNNING),
    )
    yield "service:outrider_ready:sum", FIVE.over("sum", metrics.READY, TARGET)
    yield "service:outrider_kv_cache_usage:max", FIVE.over("max", metrics.KV_CACHE_USAGE, TARGET)
    yield "service:outrider_gain:ratio_rate5m", gain(FIVE)
    yield "service:outrider_accepted_rows:ratio_rate5m", accepted_share(FIVE)
    yield "service:outrider_tokens_per_pass:ratio_rate5m", tokens_per_pass(FIVE)
    yield "service:outrider_prefix_cache_hits:ratio_rate5m", prefix_hits(FIVE)
    for share in (0.5, 0.9, 0.99):
        for metric in (metrics.TIME_TO_FIRST_TOKEN, metrics.INTER_TOKEN_LATENCY):
            quantile = FIVE.quantile(share, metric)
            yield f"service:{metric.name}:p{share * 100:.0f}_rate5m", quantile


SERVICE = "{{ $labels.namespace }}/{{ $labels.service }}"
ROUNDED, WHOLE = (f'{{{{ printf "%.{digits}f" $value }}}}' for digits in (2, 0))
OVERLOAD = 'reason=~"queue_full|stages_missing"'
UP = 'state="up"'
SERVICE_ALERTS = (
    Alert(
        "OutriderNoTargetReady",
        f"{FIVE.over('max', metrics.READY, TARGET)} == 0",
        15,
        "critical",
        f"No target of {SERVICE} takes requests.",
    ),
    Alert(
        "OutriderRequestsFail",
        f"{failed_share(FIVE, 'error')} > 0.05",
        5,
        "critical",
        f"{SERVICE} fails {{{{ $value | humanizePercentage }}}} of its requests.",
    ),
    Alert(
        "OutriderRequestsRefused",
        f"{FIVE.rate(metrics.REQUESTS_REFUSED, OVERLOAD)} > 0",
        10,
        "warning",
        f"{SERVICE} refuses {ROUNDED} requests a second.",
    ),
    Alert(
        "OutriderRequestsExpire",
        f"{failed_share(FIVE, 'expired')} > 0.01",
        10,
        "warning",
        f"{{{{ $value | humanizePercentage }}}} of requests to {SERVICE} wait until they expire.",
    ),
    Alert(
        "OutriderRequestsWait",
        f"{FIVE.over('sum', metrics.NUM_REQUESTS_WAITING)} > 0",
        15,
        "warning",
        f"Requests to {SERVICE} have waited for KV all the time; now {{{{ $value }}}} do.",
    ),
    Alert(
        "OutriderKVFull",
        f"{FIVE.over('max', metrics.KV_CACHE_USAGE, TARGET)} > 0.95",
        15,
        "warning",
        f"A target of {SERVICE} has {{{{ $value | humanizePercentage }}}} of its KV in use.",
    ),
    Alert(
        "OutriderPreemptions",
        f"{TEN.rate(metrics.NUM_PREEMPTIONS)} / {TEN.rate(metrics.REQUEST_SUCCESS)} > 0.1",
        15,
        "warning",
        f"{SERVICE} wants KV: it computes a request {ROUNDED} times again.",
    ),
    Alert(
        "OutriderDraftsUnlinked",
        f"{FIVE.over('sum', metrics.LINK_STATE, UP)} == 0",
        15,
        "warning",
        f"No target of {SERVICE} is linked to a draft: it decodes plainly.",
    ),
    Alert(
        "OutriderDraftingLoses",
        f"{gain(TEN)} < 0.95 and {TEN.rate(metrics.NUM_DRAFTS)} > 1",
        30,
        "warning",
        f"Drafting slows {SERVICE} down: {ROUNDED} times as fast as without.",
    ),
    Alert(
        "OutriderPipelineDown",
        f"{FIVE.over('min', metrics.PIPELINE_UP)} == 0",
        5,
        "critical",
        f"The stages of a target of {SERVICE} do not run as one.",
    ),
    Alert(
        "OutriderPipelineBreaks",
        f"{Scope(window='1h').growth(metrics.PIPELINE_LOSSES)} > 3",
        0,
        "warning",
        f"Stages of {SERVICE} have ended {WHOLE} times in an hour.",
    ),
)
"""Alerts by the metrics of workers."""

AGE, HEARD = f"{OPERATOR}metrics_age_seconds", f"{OPERATOR}watch_last_event_age_seconds"
PROBLEMS, ERRORS = f"{OPERATOR}problems", f"{OPERATOR}reconcile_errors_total"
ASKED, QUEUED = f"{OPERATOR}api_requests_total", f"{OPERATOR}queue_duration_seconds"
NAMED = "{{ $labels.namespace }}/{{ $labels.service }}"
BY_SERVICE = Scope(by=("namespace", "service", "reason"))
BY_NAME = Scope(by=("namespace", "service"))
ALL = Scope(by=(), window="10m")
NOT_READY = 'condition="Ready",reason!~"Suspended|RollingOut"'
DEGRADED = 'condition="Degraded"'
REFUSED = 'code=~"403|429|5.."'
BY_ERROR, BY_CODE = (Scope(by=(label,), window="10m") for label in ("error_type", "code"))
OPERATOR_ALERTS = (
    Alert(
        "OutriderServiceNotReady",
        f"{BY_SERVICE.over('max', PROBLEMS, NOT_READY)} > 0",
        15,
        "critical",
        f"{NAMED} is not Ready: {{{{ $labels.reason }}}}.",
    ),
    Alert(
        "OutriderServiceDegraded",
        f"{BY_SERVICE.over('max', PROBLEMS, DEGRADED)} > 0",
        10,
        "warning",
        f"{NAMED} needs a person: {{{{ $labels.reason }}}}.",
    ),
    Alert(
        "OutriderMetricsOld",
        f"{BY_NAME.over('max', AGE)} > 300",
        10,
        "warning",
        f"The control loop of {NAMED} holds still: its newest metrics are"
        " {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        "OutriderOperatorAbsent",
        f"absent({HEARD})",
        10,
        "critical",
        "No operator is scraped: nothing is adjusted or repaired.",
    ),
    Alert(
        "OutriderOperatorDeaf",
        f"{ALL.over('max', HEARD)} > 120",
        5,
        "warning",
        "The leading operator has received no watch event from the API server for"
        " {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "OutriderOperatorFails",
        f"{BY_ERROR.rate(ERRORS)} > 0",
        15,
        "warning",
        "Reconciles of the operator have failed for a while: {{ $labels.error_type }}.",
    ),
    Alert(
        "OutriderOperatorRefused",
        f"{BY_CODE.rate(ASKED, REFUSED)} > 0",
        15,
        "warning",
        "The API server answers the operator with {{ $labels.code }}.",
    ),
    Alert(
        "OutriderOperatorSlow",
        f"{ALL.quantile(0.99, QUEUED)} > 5",
        15,
        "warning",
        "Events of services wait {{ $value | humanizeDuration }} for their reconcile.",
    ),
)
"""Alerts by the metrics of the operator."""
