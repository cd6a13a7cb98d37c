"""Options of one chat's layout by its template."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.worker.api.control_tokens import ControlTokens

RESERVED = frozenset(
    [
        *("conversation", "messages", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "sanitize_control_tokens"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs"),
    ]
)
"""Names that are no variables of a template: transformers takes them itself."""


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """Options of a layout; by default it ends where the assistant's answer begins."""

    answers: bool = True
    """Whether it ends with what begins an assistant's turn."""
    continues: bool = False
    """Whether the last turn stays open, so that the answer goes on with it."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template, such as `enable_thinking`; none of `RESERVED`."""

    def arguments(self, control: ControlTokens) -> dict[str, Any]:
        """Return them as transformers takes them; control tokens in variables are text."""
        return {
            **control.broken(self.variables),
            "add_generation_prompt": self.answers,
            "continue_final_message": self.continues,
        }
