"""When each alert comes, and when it nearly does: series as `promtool` writes them. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]
SERVICE = 'namespace="m",service="chat",model_name="chat",engine="0"'
LABELS = {"namespace": "m", "service": "chat", "model_name": "chat"}
NAMED = {"namespace": "m", "service": "chat"}
CHAT = 'namespace="m",service="chat"'
PROBLEM = f"outrider_operator_problems{{{CHAT},"
QUEUE = "outrider_operator_queue_duration_seconds_bucket"


def _target(metric: str, *labels: str) -> str:
    chosen = ",".join((SERVICE, 'role="target"', *labels))
    return f"outrider_{metric}{{{chosen}}}"


@dataclass(frozen=True, slots=True)
class Case:
    """One alert over series with a sample a minute."""

    minutes: int
    """When it is looked at."""
    fires: Series
    quiet: Series
    """What comes near it, for as long."""
    severity: str
    summary: str
    labels: Mapping[str, str] = field(default_factory=lambda: LABELS)
    """Beside the severity."""


HEARD = "outrider_operator_watch_last_event_age_seconds"
ERRORS = 'outrider_operator_reconcile_errors_total{namespace="m",error_type="KeyError"}'
ALL = f'{QUEUE}{{le="+Inf"}}'
READY, WAITING = "ready", "num_requests_waiting"
SUCCESS = _target("request_success_total", 'finished_reason="stop"')
FAILED, EXPIRED, CANCELLED = (
    _target("request_failures_total", f'reason="{reason}"')
    for reason in ("error", "expired", "cancelled")
)
FULL, ENDING = (
    _target("requests_refused_total", f'reason="{reason}"') for reason in ("queue_full", "stopping")
)
A, B = 'pod="a"', 'pod="b"'
UP, CONNECTING = (
    _target("draft_link_state", 'draft="d:1"', f'state="{s}"') for s in ("up", "connecting")
)
OTHER_UP = _target("draft_link_state", 'draft="d:2"', 'state="up"')
PLAIN, SPENT = _target("gain_plain_seconds_total"), _target("gain_spent_seconds_total")
DRAFTED = _target("spec_decode_num_drafts_total")
LOSSES, PIPELINE = _target("pipeline_losses_total"), _target("pipeline_up")
PREEMPTIONS, KV = _target("num_preemptions_total"), _target("kv_cache_usage_perc")
DRAFT_KV = f'outrider_kv_cache_usage_perc{{{SERVICE},role="draft"}}'

CASES: Mapping[str, Case] = {
    "OutriderNoTargetReady": Case(
        20,
        {_target(READY, A): "0x60", _target(READY, B): "0x60"},
        {_target(READY, A): "0x60", _target(READY, B): "1x60"},
        "critical",
        "No target of m/chat takes requests.",
    ),
    "OutriderRequestsFail": Case(
        15,
        {SUCCESS: "0+540x60", FAILED: "0+60x60", CANCELLED: "0x60"},
        {SUCCESS: "0+540x60", FAILED: "0+6x60", CANCELLED: "0+600x60"},
        "critical",
        "m/chat fails 10% of its requests.",
    ),
    "OutriderRequestsRefused": Case(
        20,
        {FULL: "0+120x60"},
        {ENDING: "0+120x60"},
        "warning",
        "m/chat refuses 2.00 requests a second.",
    ),
    "OutriderRequestsExpire": Case(
        20,
        {SUCCESS: "0+1140x60", EXPIRED: "0+60x60"},
        {SUCCESS: "0+1140x60", EXPIRED: "0+6x60"},
        "warning",
        "5% of requests to m/chat wait until they expire.",
    ),
    "OutriderRequestsWait": Case(
        25,
        {_target(WAITING, A): "0x60", _target(WAITING, B): "3x60"},
        {_target(WAITING, A): "0x60", _target(WAITING, B): "3x12 0 3x60"},
        "warning",
        "Requests to m/chat have waited for KV all the time; now 3 do.",
    ),
    "OutriderKVFull": Case(
        25,
        {KV: "0.99x60"},
        {KV: "0.9x60", DRAFT_KV: "1x60"},
        "warning",
        "A target of m/chat has 99% of its KV in use.",
    ),
    "OutriderPreemptions": Case(
        30,
        {PREEMPTIONS: "0+30x60", SUCCESS: "0+60x60"},
        {PREEMPTIONS: "0+30x60", SUCCESS: "0+600x60"},
        "warning",
        "m/chat wants KV: it computes a request 0.50 times again.",
    ),
    "OutriderDraftsUnlinked": Case(
        20,
        {UP: "0x60", CONNECTING: "1x60"},
        {UP: "0x60", CONNECTING: "1x60", OTHER_UP: "1x60"},
        "warning",
        "No target of m/chat is linked to a draft: it decodes plainly.",
    ),
    "OutriderDraftingLoses": Case(
        45,
        {PLAIN: "0+48x60", SPENT: "0+60x60", DRAFTED: "0+120x60"},
        {PLAIN: "0+48x60", SPENT: "0+60x60", DRAFTED: "0+6x60"},
        "warning",
        "Drafting slows m/chat down: 0.80 times as fast as without.",
    ),
    "OutriderPipelineDown": Case(
        10,
        {PIPELINE: "0x60"},
        {PIPELINE: "1x7 0 1x60"},
        "critical",
        "The stages of a target of m/chat do not run as one.",
    ),
    "OutriderPipelineBreaks": Case(
        65,
        {LOSSES: "0x10 5x60"},
        {LOSSES: "0x10 2x60"},
        "warning",
        "Stages of m/chat have ended 5 times in an hour.",
    ),
    "OutriderServiceNotReady": Case(
        20,
        {f'{PROBLEM}condition="Ready",reason="TargetNotReady"}}': "1x60"},
        {f'{PROBLEM}condition="Ready",reason="Suspended"}}': "1x60"},
        "critical",
        "m/chat is not Ready: TargetNotReady.",
        {**NAMED, "reason": "TargetNotReady"},
    ),
    "OutriderServiceDegraded": Case(
        15,
        {f'{PROBLEM}condition="Degraded",reason="PodsFailing"}}': "1x60"},
        {f'{PROBLEM}condition="Ready",reason="RollingOut"}}': "1x60"},
        "warning",
        "m/chat needs a person: PodsFailing.",
        {**NAMED, "reason": "PodsFailing"},
    ),
    "OutriderMetricsOld": Case(
        15,
        {f"outrider_operator_metrics_age_seconds{{{CHAT}}}": "400x60"},
        {f"outrider_operator_metrics_age_seconds{{{CHAT}}}": "200x60"},
        "warning",
        "The control loop of m/chat holds still: its newest metrics are 6m 40s old.",
        NAMED,
    ),
    "OutriderOperatorAbsent": Case(
        15,
        {KV: "0x60"},
        {HEARD: "5x60"},
        "critical",
        "No operator is scraped: nothing is adjusted or repaired.",
        {},
    ),
    "OutriderOperatorDeaf": Case(
        10,
        {HEARD: "130x60"},
        {HEARD: "90x60"},
        "warning",
        "The leading operator has received no watch event from the API server for 2m 10s.",
        {},
    ),
    "OutriderOperatorFails": Case(
        30,
        {ERRORS: "0+6x60"},
        {ERRORS: "3x60"},
        "warning",
        "Reconciles of the operator have failed for a while: KeyError.",
        {"error_type": "KeyError"},
    ),
    "OutriderOperatorRefused": Case(
        30,
        {'outrider_operator_api_requests_total{verb="PATCH",code="403"}': "0+6x60"},
        {'outrider_operator_api_requests_total{verb="PATCH",code="409"}': "0+6x60"},
        "warning",
        "The API server answers the operator with 403.",
        {"code": "403"},
    ),
    "OutriderOperatorSlow": Case(
        30,
        {f'{QUEUE}{{le="5.0"}}': "0x60", f'{QUEUE}{{le="10.0"}}': "0+60x60", ALL: "0+60x60"},
        {f'{QUEUE}{{le="5.0"}}': "0+60x60", f'{QUEUE}{{le="10.0"}}': "0+60x60", ALL: "0+60x60"},
        "warning",
        "Events of services wait 9.95s for their reconcile.",
        {},
    ),
}
