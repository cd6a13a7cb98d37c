"""Log-probabilities of a prompt's tokens: all but the first are made the beginning of the answer.

Whatever runs passes then brings them as it brings those of any answer: with a draft and without, in
stages, on a GPU. As the prediction of that answer the prompt is verified many tokens a pass.
"""

from dataclasses import replace

from outrider.contract.inference import Usage
from outrider.worker.messages import Submit
from outrider.worker.sampling.params import require

ENDS = "a token that ends an answer has no log-probability in a prompt, unless it is the first"
FREE = "the prompt has log-probabilities where nothing changes those of the answer"


def scored(submit: Submit) -> Submit:
    """Return a request that also brings the log-probabilities of its prompt; raise
    `InvalidField`."""
    forced, sampling = submit.prompt[1:], submit.sampling
    for token in submit.end_ids:
        require(token not in forced, "prompt", token, ENDS)
    require(not (sampling.adjusts or submit.grammar), "echo", True, FREE)
    return replace(
        submit,
        prompt=submit.prompt[:1],
        prediction=forced,
        cut_prediction_tokens=0,
        max_tokens=submit.max_tokens + len(forced),
        sampling=replace(sampling, forced=tuple(forced.tolist())),
    )


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
