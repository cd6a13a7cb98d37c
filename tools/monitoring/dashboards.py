"""The dashboards: one of services, one of the operator.

Leaves their JSON to `panels` and expressions to `queries`.
"""

from tools.monitoring import queries
from tools.monitoring.panels import Dashboard, Panel, Query, Row, Variable
from tools.monitoring.queries import TARGET, Scope

from outrider.contract import metrics
from outrider.contract.metrics import Metric
from outrider.operator.server.metrics import PREFIX as OPERATOR

WINDOW = "$__rate_interval"
CHOSEN = ('namespace=~"$namespace"', 'service=~"$service"')
EACH = Scope(by=("namespace", "service"), window=WINDOW, where=CHOSEN)
POD = Scope(by=("pod",), window=WINDOW, where=CHOSEN)
ALL = Scope(by=(), window=WINDOW, where=CHOSEN)
BY_SERVICE, BY_POD = "{{namespace}}/{{service}}", "{{pod}}"
UP = 'state="up"'
PRUNED = 'fate="pruned"'
QUANTILES = (0.5, 0.9, 0.99)


def _one(
    title: str, unit: str, expression: str, legend: str = BY_SERVICE, words: str = ""
) -> Panel:
    return Panel(title, unit, (Query(expression, legend),), words)


def _stat(title: str, unit: str, expression: str) -> Panel:
    return Panel(title, unit, (Query(expression),), kind="stat", width=4)


def _latency(title: str, metric: Metric) -> Panel:
    asked = (
        Query(ALL.quantile(share, metric), f"{share * 100:.0f}th percentile") for share in QUANTILES
    )
    return Panel(title, "s", tuple(asked), metric.help)


def _by(title: str, unit: str, metric: Metric | str, label: str, scope: Scope = ALL) -> Panel:
    expression = scope.rate(metric, by=(label,))
    return Panel(title, unit, (Query(expression, f"{{{{{label}}}}}"),), stacked=True)


def _milliseconds(metric: Metric) -> str:
    segments = ALL.rate(metrics.PIPELINE_STAGE_SEGMENTS, by=("stage",))
    return f"{ALL.rate(metric, by=('stage',))} / {segments}"


OVERVIEW = Row(
    "At a glance",
    (
        _stat("Targets that take requests", "none", ALL.over("sum", metrics.READY, TARGET)),
        _stat("Tokens per second", "short", ALL.rate(metrics.GENERATION_TOKENS)),
        _stat("Requests per second", "reqps", ALL.rate(metrics.REQUEST_SUCCESS)),
        _stat("First token, 90th percentile", "s", ALL.quantile(0.9, metrics.TIME_TO_FIRST_TOKEN)),
        _stat("Times as fast as plain decoding", "short", queries.gain(ALL)),
        _stat("Fullest KV", "percentunit", ALL.over("max", metrics.KV_CACHE_USAGE, TARGET)),
    ),
)
REQUESTS = Row(
    "Requests",
    (
        _one("Tokens per second", "short", EACH.rate(metrics.GENERATION_TOKENS)),
        _one("Prompt tokens per second", "short", EACH.rate(metrics.PROMPT_TOKENS)),
        _by("Finished, by why", "reqps", metrics.REQUEST_SUCCESS, "finished_reason"),
        _by("Not answered, by why", "reqps", metrics.REQUEST_FAILURES, "reason"),
        _by("Refused, by why", "reqps", metrics.REQUESTS_REFUSED, "reason"),
        _by("HTTP answers, by status", "reqps", metrics.HTTP_REQUESTS, "code"),
        Panel(
            "Requests at once",
            "none",
            (
                Query(ALL.over("sum", metrics.NUM_REQUESTS_RUNNING), "running"),
                Query(ALL.over("sum", metrics.NUM_REQUESTS_WAITING), "waiting"),
            ),
            stacked=True,
        ),
        _one("Waiting, by target", "none", POD.over("sum", metrics.NUM_REQUESTS_WAITING), BY_POD),
        _one("Tokens per second, by target", "short", POD.rate(metrics.GENERATION_TOKENS), BY_POD),
    ),
)
LATENCY = Row(
    "Latency",
    (
        _latency("Time to the first token", metrics.TIME_TO_FIRST_TOKEN),
        _latency("Between two tokens", metrics.INTER_TOKEN_LATENCY),
        _latency("Whole answers", metrics.E2E_REQUEST_LATENCY),
        _latency("Time in the queue", metrics.REQUEST_QUEUE_TIME),
        _latency("Tokens of prompts", metrics.REQUEST_PROMPT_TOKENS),
        _latency("Tokens of answers", metrics.REQUEST_GENERATION_TOKENS),
    ),
)
SPECULATION = Row(
    "Speculation",
    (
        _one(
            "Times as fast as plain decoding",
            "short",
            queries.gain(EACH),
            words="Below 1 drafting costs more than it brings.",
        ),
        _one("Tokens per verify pass", "short", queries.tokens_per_pass(EACH)),
        _one("Share of node rows accepted", "percentunit", queries.accepted_share(EACH)),
        Panel(
            "Accepted rows per second, by depth",
            "short",
            (
                Query(
                    ALL.rate(metrics.NUM_ACCEPTED_TOKENS_PER_POS, by=("position",)),
                    "{{position}}",
                ),
            ),
        ),
        _by("Rows verified per second, by source", "short", metrics.NUM_SOURCE_TOKENS, "source"),
        Panel(
            "Share of passes",
            "percentunit",
            (
                Query(queries.share_of_passes(ALL, metrics.NUM_DRAFTS), "over node rows"),
                Query(queries.share_of_passes(ALL, metrics.BLIND_PASSES), "without a node"),
                Query(queries.share_of_passes(ALL, metrics.RESTING_PASSES), "drafting off"),
            ),
        ),
        Panel(
            "State of drafting",
            "none",
            (Query(ALL.over("sum", metrics.DRAFTING_STATE, by=("state",)), "{{state}}"),),
            "Targets, by what their own switch wants.",
            stacked=True,
        ),
        _one("Rows per pass of the engine", "short", queries.rows_per_pass(EACH)),
        _latency("From a commit to growth that knows it", metrics.GROWTH_LATENCY),
        _one(
            "Share of time that waits for growth",
            "percentunit",
            queries.waiting_share(EACH),
        ),
        _one("Most tokens behind", "none", POD.over("max", metrics.DRAFT_LAG), BY_POD),
        _by("Why a step ran its rows", "ops", metrics.PLANNER_STEPS, "choice"),
    ),
)
MEMORY = Row(
    "KV",
    (
        _one("Share in use", "percentunit", POD.over("max", metrics.KV_CACHE_USAGE), BY_POD),
        _one("Share of prompts that was there", "percentunit", queries.prefix_hits(EACH)),
        _one("Preemptions per second", "ops", EACH.rate(metrics.NUM_PREEMPTIONS)),
    ),
)
DRAFTS = Row(
    "Drafts",
    (
        _one("Sessions", "none", POD.over("sum", metrics.DRAFT_SESSIONS), BY_POD),
        _one("Passes per second", "ops", POD.rate(metrics.DRAFT_PASSES), BY_POD),
        _one("Rows per second", "short", POD.rate(metrics.DRAFT_ROWS), BY_POD),
        Panel(
            "Links, by state",
            "none",
            (Query(ALL.over("sum", metrics.LINK_STATE, by=("state",)), "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Links, by what carries them",
            "none",
            (Query(ALL.over("sum", metrics.LINK_TRANSPORT, by=("transport",)), "{{transport}}"),),
            stacked=True,
        ),
        _one("Tokens committed per second", "short", POD.rate(metrics.DRAFT_TOKENS), BY_POD),
    ),
)
PIPELINE = Row(
    "Pipelined targets",
    (
        _one("Groups of stages that run", "none", EACH.over("sum", metrics.PIPELINE_UP)),
        _by(
            "Seconds of computing in a second",
            "short",
            metrics.PIPELINE_STAGE_BUSY_SECONDS,
            "stage",
        ),
        _by("Rows in a stage", "short", metrics.PIPELINE_STAGE_ROW_SECONDS, "stage"),
        _one(
            "On the way to a stage",
            "s",
            _milliseconds(metrics.PIPELINE_STAGE_LINK_SECONDS),
            "{{stage}}",
            "Of a segment.",
        ),
        _one(
            "Waiting in a stage",
            "s",
            _milliseconds(metrics.PIPELINE_STAGE_QUEUE_SECONDS),
            "{{stage}}",
            "Of a segment.",
        ),
        _one(
            "Share of rows that were pruned",
            "percentunit",
            f"{EACH.rate(metrics.PIPELINE_ROWS, PRUNED)} / {EACH.rate(metrics.PIPELINE_ROWS)}",
        ),
    ),
)
SERVICES = Dashboard(
    "outrider-services",
    "Outrider / services",
    (
        Variable("namespace", f"label_values({metrics.READY.name}, namespace)"),
        Variable(
            "service", f'label_values({metrics.READY.name}{{namespace=~"$namespace"}}, service)'
        ),
    ),
    (OVERVIEW, REQUESTS, LATENCY, SPECULATION, MEMORY, DRAFTS, PIPELINE),
)

WHOLE = Scope(by=(), window=WINDOW)
SERVED = Scope(by=("namespace", "service"), window=WINDOW)
TRUE = 'status="True"'
PASS, QUEUE = f"{OPERATOR}reconcile_duration_seconds", f"{OPERATOR}queue_duration_seconds"


def _seconds(title: str, metric: str) -> Panel:
    asked = (
        Query(WHOLE.quantile(share, metric), f"{share * 100:.0f}th percentile")
        for share in QUANTILES
    )
    return Panel(title, "s", tuple(asked))


STATE = Row(
    "Services",
    (
        Panel(
            "Services, by condition that is True",
            "none",
            (
                Query(
                    WHOLE.over("sum", f"{OPERATOR}resources", TRUE, by=("condition",)),
                    "{{condition}}",
                ),
            ),
        ),
        Panel(
            "Services that need a look",
            "none",
            (
                Query(
                    SERVED.over("max", f"{OPERATOR}problems", by=("condition", "reason")),
                ),
            ),
            kind="table",
        ),
        _by("Decisions of the control loop", "ops", f"{OPERATOR}decisions_total", "action", WHOLE),
        _one(
            "Age of the metrics decided on",
            "s",
            SERVED.over("max", f"{OPERATOR}metrics_age_seconds"),
            "{{namespace}}/{{service}}",
        ),
    ),
)
WORK = Row(
    "The operator",
    (
        _seconds("A reconcile of a service", PASS),
        _seconds("From an event to its reconcile", QUEUE),
        _by("Reconciles, by result", "ops", f"{OPERATOR}reconcile_total", "result", WHOLE),
        _by(
            "Failed reconciles, by error",
            "ops",
            f"{OPERATOR}reconcile_errors_total",
            "error_type",
            WHOLE,
        ),
        _by(
            "Requests to the API server, by status",
            "reqps",
            f"{OPERATOR}api_requests_total",
            "code",
            WHOLE,
        ),
        _one(
            "Since the last event of any watch",
            "s",
            WHOLE.over("max", f"{OPERATOR}watch_last_event_age_seconds"),
            "seconds",
        ),
    ),
)
OPERATORS = Dashboard("outrider-operator", "Outrider / operator", (), (STATE, WORK))
DASHBOARDS = (SERVICES, OPERATORS)
