"""Tokens that end an answer, by a model's tokenizer: its own end, and that of an assistant's turn.

A config names one of them at most. Where it names `<|endoftext|>` and the chat template closes
turns with `<|im_end|>`, as in many fine-tunes, a chat would go on to its last token.
"""

import logging
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.prepared import ANSWER_ENDS
from outrider.worker.host.disk_cache import found_of

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
ANSWER = "The answer to this question is forty-two."

logger = logging.getLogger(__name__)


def note(tokenizer: Path, cache: Path) -> None:
    """Find the ids by the tokenizer in a folder, once, for `PreparedModel.config`."""
    found_of([tokenizer / name for name in FILES], cache / ANSWER_ENDS, lambda: find(tokenizer))


def find(directory: Path) -> list[int]:
    """Return the ids by the tokenizer in a folder; none of a broken one, which `Text` refuses."""
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    except Exception as error:  # the binding raises nothing narrower for a broken file
        logger.info("%s: no usable tokenizer: %s", directory, error)
        return []
    found = (tokenizer.eos_token_id, turn_end(tokenizer))
    return [*dict.fromkeys(token for token in found if token is not None)]


def turn_end(tokenizer: Any) -> int | None:
    """Return the first special token behind an assistant's turn, as transformers' tokenizer lays it
    out; None without a chat template, or where nothing comes."""
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": ANSWER}]
    try:
        laid_out = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception as error:  # a template is a program: anything may come of it
        logger.info("the chat template lays out no assistant's turn: %s", error)
        return None
    rest = laid_out.rpartition(ANSWER)[2]
    special = {
        added.content: at for at, added in tokenizer.added_tokens_decoder.items() if added.special
    }
    places = {rest.find(text): text for text in special if text in rest}
    return special[places[min(places)]] if places else None
