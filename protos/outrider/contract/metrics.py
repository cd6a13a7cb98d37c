"""Names of all metrics of workers, as plain data: what `/metrics` shows and its readers ask for.

Stems are vLLM's with `outrider_` in front where vLLM has the metric. Leaves values to the workers;
imports no Prometheus library.
"""

import enum
from dataclasses import dataclass

from outrider.contract.counters import GROWTH_LATENCY_BOUNDS
from outrider.contract.settings import LinkTransport, Role


class MetricKind(enum.StrEnum):
    """Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    """As it is shown; a counter's ends in `_total`."""
    kind: MetricKind
    help: str
    roles: tuple[Role, ...]
    """Who has it."""
    labels: tuple[str, ...] = ()
    """Beside `COMMON`."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""
    counter: str = ""
    """The field of `Counters` that it shows; empty: the worker computes it."""


COMMON = ("model_name", "engine", "role")
"""Labels of every metric."""
ENGINE = "0"
"""The label `engine`: a worker has one."""
LINK_STATES = ("connecting", "up", "refused")
LINK_TRANSPORTS = tuple(t.value for t in LinkTransport if t is not LinkTransport.AUTO)
"""What can carry the messages of a link."""
DRAFTING_STATES = ("on", "off", "probe", "check", "disabled")
MEMORY_USES = ("target_kv", "draft_kv", "draft_weights")
FINISH_REASONS = ("stop", "length")
ROW_FATES = ("prompt", "committed", "pruned")
FAILURES = ("cancelled", "expired", "error")
PREFIX = "outrider_"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
TOKEN_SECONDS = (
    0.001,
    0.002,
    0.004,
    0.006,
    0.01,
    0.015,
    0.02,
    0.03,
    0.04,
    0.06,
    0.1,
    0.2,
    0.4,
    1.0,
)
TOKENS = tuple(float(2**n) for n in range(17))
TARGET, DRAFT = (Role.TARGET,), (Role.DRAFT,)
BOTH = (Role.TARGET, Role.DRAFT)
STAGES: tuple[Role, ...] = ()
"""Neither role: the stages of a pipelined target."""


def _gauge(
    name: str, text: str, *labels: str, roles: tuple[Role, ...] = TARGET, of: str = ""
) -> Metric:
    return Metric(PREFIX + name, MetricKind.GAUGE, text, roles, labels, counter=of)


def _counter(
    name: str, text: str, *labels: str, roles: tuple[Role, ...] = TARGET, of: str = ""
) -> Metric:
    return Metric(f"{PREFIX}{name}_total", MetricKind.COUNTER, text, roles, labels, counter=of)


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(PREFIX + name, MetricKind.HISTOGRAM, text, TARGET, (), buckets)


BUILD_INFO = _gauge(
    "build_info",
    "Always 1; what runs stands in the labels.",
    "version",
    "revision",
    "dtype",
    roles=BOTH,
)
READY = _gauge("ready", "1 while new requests or sessions are taken.", roles=BOTH)

NUM_REQUESTS_WAITING = _gauge("num_requests_waiting", "Requests that wait for KV.")
NUM_REQUESTS_RUNNING = _gauge("num_requests_running", "Requests that hold KV.")
REQUEST_SUCCESS = _counter("request_success", "Requests answered to their end.", "finished_reason")
REQUEST_FAILURES = _counter(
    "request_failures",
    "Requests taken and not answered to their end: cancelled by the client or its deadline, expired"
    " in the queue, or given up by the engine after an error.",
    "reason",
)
REQUESTS_REFUSED = _counter("requests_refused", "Requests that never reached the engine.", "reason")
HTTP_REQUESTS = _counter("http_requests", "HTTP requests answered, by status.", "code", roles=BOTH)
NUM_PREEMPTIONS = _counter(
    "num_preemptions",
    "Times that a request gave its KV back and computed it again.",
    of="preemptions",
)

TIME_TO_FIRST_TOKEN = _histogram(
    "time_to_first_token_seconds", "From arrival to the first token.", SECONDS
)
INTER_TOKEN_LATENCY = _histogram(
    "inter_token_latency_seconds",
    "Between two tokens of an answer; those that come together share the time since the last: "
    "those of 16 ms of a stream, of a second of an answer that is not streamed.",
    TOKEN_SECONDS,
)
E2E_REQUEST_LATENCY = _histogram(
    "e2e_request_latency_seconds", "From arrival to the end of a whole answer.", LONG_SECONDS
)
REQUEST_QUEUE_TIME = _histogram(
    "request_queue_time_seconds", "From arrival to KV, of requests that got a token.", SECONDS
)
REQUEST_PROMPT_TOKENS = _histogram(
    "request_prompt_tokens", "Tokens of the prompts of whole answers.", TOKENS
)
REQUEST_GENERATION_TOKENS = _histogram(
    "request_generation_tokens", "Tokens of whole answers.", TOKENS
)

PROMPT_TOKENS = _counter(
    "prompt_tokens", "Tokens of prompts of requests that started.", of="prompt_tokens"
)
GENERATION_TOKENS = _counter("generation_tokens", "Tokens of answers.", of="generation_tokens")
PREFIX_CACHE_QUERIES = _counter(
    "prefix_cache_queries",
    "Tokens of prompts, or of opened sessions, that were looked up.",
    roles=BOTH,
    of="prompt_tokens",
)
PREFIX_CACHE_HITS = _counter(
    "prefix_cache_hits",
    "Tokens of prompts, or of opened sessions, whose KV was there.",
    roles=BOTH,
    of="cached_prompt_tokens",
)
KV_CACHE_USAGE = _gauge("kv_cache_usage_perc", "Share of KV slots in use, 0 to 1.", roles=BOTH)
KV_CACHE_SLOTS = _gauge(
    "kv_cache_slots", "KV slots in all; one holds one token.", roles=BOTH, of="kv_slots"
)
KV_CACHE_USED_SLOTS = _gauge(
    "kv_cache_used_slots", "KV slots in use.", roles=BOTH, of="kv_slots_used"
)

NUM_DRAFTS = _counter(
    "spec_decode_num_drafts",
    "Verify passes of a sequence over one node row or more.",
    of="drafted_passes",
)
NUM_DRAFT_TOKENS = _counter("spec_decode_num_draft_tokens", "Node rows verified.", of="draft_rows")
NUM_ACCEPTED_TOKENS = _counter(
    "spec_decode_num_accepted_tokens", "Node rows accepted.", of="accepted_rows"
)
NUM_ACCEPTED_TOKENS_PER_POS = _counter(
    "spec_decode_num_accepted_tokens_per_pos",
    "Node rows accepted, by depth below the root; position 0 is the root's child.",
    "position",
)
NUM_SOURCE_TOKENS = _counter(
    "spec_decode_num_source_tokens",
    "Node rows verified, by what proposed them; of several the prediction, else the draft.",
    "source",
)
NUM_SOURCE_ACCEPTED_TOKENS = _counter(
    "spec_decode_num_source_accepted_tokens",
    "Node rows accepted, by what proposed them; of several the prediction, else the draft.",
    "source",
)
NUM_FIRST_GUESSES = _counter(
    "spec_decode_num_first_guesses",
    "Verify passes with the draft's likeliest next token.",
    of="first_guesses",
)
NUM_FIRST_HITS = _counter(
    "spec_decode_num_first_hits",
    "Verify passes in which the draft's likeliest next token was right.",
    of="first_hits",
)
VERIFY_PASSES = _counter(
    "verify_passes", "Verify passes, each of one sequence, with or without node rows.", of="passes"
)
BLIND_PASSES = _counter(
    "blind_passes",
    "Verify passes for which no node was there, although a draft was to grow some.",
    of="blind_passes",
)
RESTING_PASSES = _counter(
    "resting_passes", "Verify passes without a draft because drafting was off.", of="resting_passes"
)
VERIFIED_TOKENS = _counter(
    "verified_tokens",
    "Tokens that verify passes committed: all but each answer's first.",
    of="tokens",
)
STEPS = _counter(
    "engine_steps", "Passes of the engine, each over rows of several sequences.", of="steps"
)
STEP_ROWS = _counter(
    "engine_step_rows",
    "Rows of all passes of the engine: roots, nodes, prompt tokens.",
    of="step_rows",
)
HOST_SECONDS = _counter(
    "engine_host_seconds",
    "Seconds between passes of the engine in which it did not wait.",
    roles=BOTH,
    of="host_seconds",
)
LAST_ROWS = _gauge("engine_last_step_rows", "Rows of the last pass.")
SPECULATION_TOKENS = _gauge("speculation_tokens", "Node rows of the last pass.")
GAIN_PLAIN_SECONDS = _counter(
    "gain_plain_seconds",
    "Seconds that plain decoding would have taken for committed tokens.",
    of="plain_seconds",
)
GAIN_SPENT_SECONDS = _counter(
    "gain_spent_seconds", "Seconds that committed tokens took.", of="spent_seconds"
)
GAIN_LOCAL_PLAIN_SECONDS = _counter(
    "gain_local_plain_seconds",
    "Of outrider_gain_plain_seconds_total, those of tokens that local sources brought.",
    of="local_plain_seconds",
)
GAIN_LOCAL_SPENT_SECONDS = _counter(
    "gain_local_spent_seconds",
    "Of outrider_gain_spent_seconds_total, those that rows of local sources took.",
    of="local_spent_seconds",
)
DRAFT_WAIT_SECONDS = _counter(
    "draft_wait_seconds", "Seconds that passes waited for growth.", of="draft_wait_seconds"
)
GROWTH_LATENCY = _histogram(
    "growth_latency_seconds",
    "From a commit to the first growth that knows it.",
    GROWTH_LATENCY_BOUNDS,
)
GROWTH_DROPPED = _counter(
    "growth_dropped", "Nodes that arrived dead; reason is always stale.", "reason"
)
DRAFTING_SECONDS = _counter(
    "drafting_seconds",
    "Seconds of draft passes in the target's own process.",
    of="drafting_seconds",
)
DRAFTING_STATE = _gauge(
    "drafting_state", "1 for the state that drafting is in, 0 for the others.", "state"
)
PLANNER_STEPS = _counter(
    "planner_steps",
    "Steps that decoded by why they ran the node rows that they did (concepts/planner.md).",
    "choice",
)
DRAFT_LAG = _gauge(
    "draft_lag_tokens", "Most tokens by which the draft of a running request is behind."
)
DRAFT_MEMORY_STATE = _gauge(
    "draft_memory_state",
    "1 for where the weights of a draft in the target's process are, 0 for the others.",
    "state",
)
MEMORY_BYTES = _gauge(
    "memory_bytes",
    "Bytes in use of what a target and a draft in its process share, on a CPU.",
    "use",
)
KV_EXPANSIONS = _counter(
    "kv_expansions", "Times at which the target's KV grew by the draft's memory."
)
KV_CONTRACTIONS = _counter(
    "kv_contractions", "Times at which the target's KV gave the draft's memory back."
)
KV_MOVED_BLOCKS = _counter(
    "kv_moved_blocks", "Blocks of the target's KV that were moved to give the draft's memory back."
)
LINK_STATE = _gauge(
    "draft_link_state",
    "1 for the state that the link to a draft is in, 0 for the others.",
    "draft",
    "state",
)
LINK_TRANSPORT = _gauge(
    "draft_link_transport",
    "1 for what carries the messages of the link to a draft, 0 for the others.",
    "draft",
    "transport",
)

PIPELINE_UP = _gauge("pipeline_up", "Pipelined targets: 1 while all stages run as one.")
PIPELINE_LOSSES = _counter(
    "pipeline_losses", "Groups of stages that have ended since the engine started."
)
PIPELINE_SEGMENTS_IN_FLIGHT = _gauge(
    "pipeline_segments_in_flight", "Segments with live rows that are on their way."
)
PIPELINE_ROWS_IN_FLIGHT = _gauge(
    "pipeline_rows_in_flight", "Live rows of segments that are on their way."
)
PIPELINE_SEGMENTS = _counter("pipeline_segments", "Segments that came back from the last stage.")
PIPELINE_SEGMENT_SECONDS = _counter(
    "pipeline_segment_seconds",
    "Seconds from the sending of segments to their coming back, added up over all segments.",
)
PIPELINE_ROWS = _counter(
    "pipeline_rows",
    "Rows of segments by what became of them: of prompts; roots and nodes that were committed; "
    "nodes that died. Those of which it is not known yet are not counted.",
    "fate",
)
PIPELINE_STAGE_SEGMENTS = _counter(
    "pipeline_stage_segments",
    "Segments that a stage computed and that came back, those without rows not counted.",
    "stage",
)
PIPELINE_STAGE_ROWS = _counter(
    "pipeline_stage_rows", "Rows that a stage computed, of segments that came back.", "stage"
)
PIPELINE_STAGE_BUSY_SECONDS = _counter(
    "pipeline_stage_busy_seconds",
    "Seconds for which a stage computed rows of segments that came back.",
    "stage",
)
PIPELINE_STAGE_QUEUE_SECONDS = _counter(
    "pipeline_stage_queue_seconds",
    "Seconds for which segments waited in a stage before it computed them.",
    "stage",
)
PIPELINE_STAGE_ROW_SECONDS = _counter(
    "pipeline_stage_row_seconds",
    "Seconds for which rows were in a stage, added up over all rows: its rate is the mean number "
    "of rows in it.",
    "stage",
)
PIPELINE_STAGE_LINK_SECONDS = _counter(
    "pipeline_stage_link_seconds",
    "Seconds for which segments were on their way to a stage, from the one before or the leader.",
    "stage",
)

DRAFT_SESSIONS = _gauge("draft_sessions", "Sessions that hold KV.", roles=DRAFT)
DRAFT_SESSIONS_CLOSED = _counter(
    "draft_sessions_closed", "Sessions that ended.", roles=DRAFT, of="requests_finished"
)
DRAFT_PASSES = _counter("draft_passes", "Passes of the draft.", roles=DRAFT, of="passes")
DRAFT_ROWS = _counter(
    "draft_rows",
    "Rows of the draft's passes: leaves expanded and missing tokens.",
    roles=DRAFT,
    of="draft_rows",
)
DRAFT_TOKENS = _counter(
    "draft_committed_tokens", "Tokens that targets committed.", roles=DRAFT, of="tokens"
)

STAGE_UP = _gauge("stage_up", "1 while the stage takes part in a group.", "stage", roles=STAGES)
STAGE_GROUPS = _counter(
    "stage_groups", "Groups that the stage took part in.", "stage", roles=STAGES
)
STAGE_BUSY_SECONDS = _counter(
    "stage_busy_seconds",
    "Seconds of computing rows and handling other records.",
    "stage",
    roles=STAGES,
)
STAGE_SEGMENTS = _counter(
    "stage_segments", "Segments computed, those without rows not counted.", "stage", roles=STAGES
)
STAGE_ROWS = _counter("stage_rows", "Rows computed.", "stage", roles=STAGES)
STAGE_ROWS_WAITING = _gauge(
    "stage_rows_waiting", "Rows that have come and are not computed.", "stage", roles=STAGES
)
STAGE_RECEIVED_BYTES = _counter(
    "stage_received_bytes", "Bytes of records received.", "stage", roles=STAGES
)
STAGE_SENT_BYTES = _counter(
    "stage_sent_bytes",
    "Bytes of records sent on; of the last one, of results.",
    "stage",
    roles=STAGES,
)

VLLM = {
    metric: (f"vllm:{stem}",)
    for metric in (
        NUM_REQUESTS_WAITING,
        NUM_REQUESTS_RUNNING,
        REQUEST_SUCCESS,
        NUM_PREEMPTIONS,
        TIME_TO_FIRST_TOKEN,
        INTER_TOKEN_LATENCY,
        E2E_REQUEST_LATENCY,
        REQUEST_QUEUE_TIME,
        REQUEST_PROMPT_TOKENS,
        REQUEST_GENERATION_TOKENS,
        PROMPT_TOKENS,
        GENERATION_TOKENS,
        PREFIX_CACHE_QUERIES,
        PREFIX_CACHE_HITS,
        KV_CACHE_USAGE,
        NUM_DRAFTS,
        NUM_DRAFT_TOKENS,
        NUM_ACCEPTED_TOKENS,
        NUM_ACCEPTED_TOKENS_PER_POS,
    )
    for stem in (metric.name.removeprefix(PREFIX),)
} | {
    KV_CACHE_USAGE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    INTER_TOKEN_LATENCY: (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
}
"""Names of vLLM's, of two releases where it renamed one, under which a target shows a metric too:
endpoint pickers, autoscalers and dashboards ask for them."""

ALL = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""Every metric, in the order of this file."""
OF_STAGES = (BUILD_INFO, READY, *(metric for metric in ALL if metric.roles is STAGES))
"""What a stage of a pipelined target shows."""


def of_role(role: Role) -> tuple[Metric, ...]:
    """Return the metrics of a role."""
    return tuple(metric for metric in ALL if role in metric.roles)
