"""Tags around a tool call in an answer, as the model's chat template writes them.

Leaves reading calls to `http.tool_calls`, and the template itself to `text`.
"""

import json
import re
from collections.abc import Mapping, Sequence

from outrider.contract.inference import Message
from outrider.worker.api.chat_layout import (
    ASKED,
    ASSISTANT,
    CALLED,
    FUNCTION,
    PROBED_TOOL,
    SAID,
    TEMPLATE_ERRORS,
    Render,
    as_they_are,
    with_short_ids,
)

KNOWN_TAGS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>")
"""Tags of Hermes and Qwen, Mistral, Llama 3 and Phi-4, for models whose template writes none."""
PARTS_OF_CALLS = ("[CALL_ID]", "[ARGS]")
"""Tags that newer Mistral models write within a call."""
TAG = re.compile(r"(<[^<>\s]+>|\[[A-Z_]+\])\s*(\[?\s*\{[^<]*)?\Z")
"""Tag, and what there may be between it and a function's name."""


def find_tags(render: Render) -> tuple[str, ...]:
    """Return the tags of a template's own calls; all that are known, where it writes none."""
    for layout in (as_they_are, with_short_ids):
        try:
            called = render(layout([ASKED, CALLED]), tools=[PROBED_TOOL])
            said = render([ASKED, Message(ASSISTANT, SAID)], tools=[PROBED_TOOL])
        except TEMPLATE_ERRORS:
            continue
        begin = said.partition(SAID)[0].rstrip()
        before, name, _ = called.removeprefix(begin).partition(FUNCTION)
        if called.startswith(begin) and name and (tag := TAG.search(before)):
            return (tag[1],)
    return KNOWN_TAGS


def closing_tag(tag: str) -> str:
    """Return the tag that closes a call, where one does: `</tool_call>`, `<|/tool_call|>`."""
    return re.sub(r"(?=\w)", "/", tag, count=1)


def call_grammar(tags: Sequence[str], special: Mapping[int, bytes], size: int) -> str:
    """Return llguidance's rule `call`: `@calls`, with a tag or without; also as a list of one.

    `special` are the tags that are special tokens, of which the model has those below `size`. The
    closing tag may be left out: not every tag has one.
    """
    ids = {tag.decode(): at for at, tag in special.items() if at < size}

    def any_of(words: Sequence[str]) -> str:
        return " | ".join(f"<[{ids[word]}]>" if word in ids else json.dumps(word) for word in words)

    return f"""\
call: @calls | tag BLANK? (@calls | "[" BLANK? @calls BLANK? "]") (BLANK? closing)?
tag: {any_of(tags)}
closing: {any_of([*map(closing_tag, tags)])}
BLANK: /[ \\n]/
"""
