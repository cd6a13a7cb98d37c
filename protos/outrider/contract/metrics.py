"""Names of the Prometheus metrics that workers serve and the operator reads.

Counters, not ratios: sum over workers first, then divide. Stems that vLLM has too are vLLM's.
"""

from typing import Final

REQUESTS_RUNNING: Final = "outrider_num_requests_running"
"""Gauge: sequences (target) or sessions (draft) that hold KV."""
REQUESTS_WAITING: Final = "outrider_num_requests_waiting"
"""Gauge: requests that wait for a place."""
GENERATION_TOKENS: Final = "outrider_generation_tokens_total"
"""Counter: committed tokens."""
PASSES: Final = "outrider_passes_total"
"""Counter: verify passes (target) or growth passes (draft)."""
DRAFT_ROWS: Final = "outrider_spec_decode_num_draft_tokens_total"
"""Counter: node rows verified (target) or rows run (draft)."""
ACCEPTED_ROWS: Final = "outrider_spec_decode_num_accepted_tokens_total"
"""Counter: node rows whose token was committed."""
PLAIN_SECONDS: Final = "outrider_plain_seconds_total"
"""Counter: seconds that plain decoding would have taken; above the next one, speculation pays."""
SPENT_SECONDS: Final = "outrider_spent_seconds_total"
"""Counter: seconds that the committed tokens took; gain is the one above divided by this one."""
DRAFT_WAIT_SECONDS: Final = "outrider_draft_wait_seconds_total"
"""Counter: seconds that the target waited for growth."""
GROWTH_DROPPED: Final = "outrider_growth_dropped_total"
"""Counter, label `reason`: nodes that arrived and could not be used."""
