"""Log-probabilities of a prompt's tokens: all but the first are made the beginning of the answer.

Whatever runs passes then brings them as it brings those of any answer: with a draft and without, in
stages, on a GPU. As the prediction of that answer the prompt is verified many tokens a pass.
"""

from asyncio import Queue
from dataclasses import replace

from outrider.contract.inference import Timing, Usage
from outrider.worker.engine.open_answer import AnswerReader, Event
from outrider.worker.messages import Finish, Finished, Submit, Tokens
from outrider.worker.sampling.params import SETTINGS, require

PENALTIES = frozenset(name for name in SETTINGS.names or () if name.endswith("_penalty"))
"""Sampling params that change log-probabilities and that a model may set for its answers."""
ENDS = (
    "a token that ends an answer has no log-probability in a prompt, unless it is the first or "
    "max_tokens is at most 1"
)
FREE = "the prompt has log-probabilities where nothing changes those of the answer"


def scored(submit: Submit) -> Submit:
    """Return a request that also brings the log-probabilities of its prompt; raise
    `InvalidField`."""
    forced, sampling = submit.prompt[1:], submit.sampling
    ends = submit.end_ids
    if inside := [token for token in ends if token in forced]:
        require(submit.max_tokens <= 1, "prompt", inside[0], ENDS)
        ends = ()  # an answer that short needs none
    require(not (sampling.adjusts or submit.grammar), "echo", True, FREE)
    return replace(
        submit,
        prompt=submit.prompt[:1],
        prediction=forced,
        cut_prediction_tokens=0,
        max_tokens=submit.max_tokens + len(forced),
        end_ids=ends,
        sampling=replace(sampling, forced=tuple(forced.tolist())),
    )


def empty_answer(submit: Submit, reader: AnswerReader) -> "Queue[Event | None]":
    """Return the events of an answer for which nothing is computed: it has no token, and the prompt
    has none but the first."""
    usage = Usage(prompt_tokens=len(submit.prompt))
    events: Queue[Event | None] = Queue()
    reader.read(())
    events.put_nowait(Tokens(submit.request, ()))
    events.put_nowait(Finished(submit.request, Finish.LENGTH, usage, Timing()))
    return events


def without_prompt(usage: Usage, submit: Submit) -> Usage:
    """Return the cost of an answer whose first tokens may be of the prompt."""
    count = len(submit.sampling.forced)
    if count == 0:
        return usage
    return replace(
        usage,
        prompt_tokens=usage.prompt_tokens + count,
        completion_tokens=max(0, usage.completion_tokens - count),
        prediction_tokens=0,
        accepted_prediction_tokens=0,
    )
