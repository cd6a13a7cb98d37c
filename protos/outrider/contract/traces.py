"""Names of traces: spans, their attributes, and the services that they belong to.

Attributes that OpenTelemetry's conventions for generative AI have a name for bear it. Leaves what
is measured to the workers.
"""

REQUEST = "outrider.request"
"""One request, from its arrival at a target to its end."""
QUEUE = "queue"
"""Child of a request: until it gets KV for the first time."""
PREFILL = "prefill"
"""Child of a request: from there to the first token."""
DECODE = "decode"
"""Child of a request: from the first token to the last."""
DRAFT_SESSION = "outrider.draft_session"
"""Child of a request, made by a draft: one session, from Open to its end."""

MODEL = "gen_ai.request.model"
PROMPT_TOKENS = "gen_ai.usage.input_tokens"
COMPLETION_TOKENS = "gen_ai.usage.output_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
CACHED_TOKENS = "outrider.cached_prompt_tokens"
REQUEST_ID = "outrider.request.id"
"""Counts the requests of one life of a target."""
CHOICE = "outrider.choice"
PRIORITY = "outrider.priority"
PASSES = "outrider.passes"
DRAFT_ROWS = "outrider.draft_rows"
ACCEPTED_ROWS = "outrider.accepted_rows"
SPECULATED = "outrider.speculated"
"""Whether any pass verified node rows."""
ROWS = "outrider.rows"
NODES = "outrider.nodes_sent"
COMMITTED_TOKENS = "outrider.committed_tokens"
CLOSE_REASON = "outrider.close_reason"

TARGET_SERVICE = "outrider-target"
DRAFT_SERVICE = "outrider-draft"
"""Names of the services, unless the environment has one."""
