"""Parameters of OpenAI, vLLM, llama-server and SGLang that change an answer and are not served.

To ignore one would give another answer than the one that was asked for, without a word.
"""

from collections.abc import Mapping
from typing import Any

OFF, FALSE, ZERO, ONE = ((), (False,), (0,), (1,))
EMPTY: tuple[Any, ...] = ([],)
UNSERVED: Mapping[str, tuple[Any, ...]] = {
    # how tokens are chosen
    **dict.fromkeys(("best_of", "typical_p", "typ_p", "tfs_z"), ONE),
    **dict.fromkeys(("mirostat", "dynatemp_range", "xtc_probability", "dry_multiplier"), ZERO),
    **dict.fromkeys(("no_repeat_ngram_size", "top_a"), ZERO),
    **dict.fromkeys(("allowed_token_ids", "samplers", "sampling_seed"), OFF),
    **dict.fromkeys(("custom_logit_processor", "custom_params", "vllm_xargs"), OFF),
    **dict.fromkeys(("repetition_detection", "lora_path"), OFF),
    **dict.fromkeys(("logits_processors", "lora"), EMPTY),
    "min_keep": ZERO,
    "repeat_penalty": ONE,
    "top_n_sigma": (-1, 0),
    "use_beam_search": FALSE,
    # where the answer ends, and which form it has
    **dict.fromkeys(("max_new_tokens", "stop_regex"), OFF),
    **dict.fromkeys(("min_new_tokens", "t_max_predict_ms", "n_indent"), ZERO),
    **dict.fromkeys(("guided_whitespace_pattern", "structural_tag"), OFF),
    "n_predict": (-1,),
    # how the prompt is laid out
    **dict.fromkeys(("audio", "web_search_options"), OFF),
    **dict.fromkeys(("functions", "documents"), EMPTY),
    **dict.fromkeys(("chat_template", "prompt_embeds", "input_ids", "input_embeds"), OFF),
    **dict.fromkeys(("truncate_prompt_tokens", "session_params"), OFF),
    "function_call": ("none",),
    "n_keep": ZERO,
    # how much the model thinks and says
    **dict.fromkeys(("enable_thinking", "thinking", "reasoning", "thinking_token_budget"), OFF),
    **dict.fromkeys(("include_reasoning", "separate_reasoning", "stream_reasoning"), (True,)),
    **dict.fromkeys(("reasoning_budget", "thinking_budget_tokens"), (-1,)),
    "reasoning_format": ("auto", "deepseek"),
    "verbosity": ("medium",),
    # what is shown of the answer
    "parse_tool_calls": (True,),
    "no_stop_trim": FALSE,
    **dict.fromkeys(("return_tokens", "return_token_ids", "return_tokens_as_token_ids"), FALSE),
    "n_probs": ZERO,
    "prompt_logprobs": OFF,
    "return_hidden_states": FALSE,
    "skip_special_tokens": (True,),
}
"""Values of each that change nothing, beside null."""
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("enable_thinking", "thinking"), "chat_template_kwargs"),
    "reasoning": "reasoning_effort",
    "functions": "tools",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "n_predict": "max_tokens",
    "no_stop_trim": "include_stop_str_in_output",
    "n_probs": "logprobs",
    "prompt_logprobs": "echo with logprobs, for completions",
    "repeat_penalty": "repetition_penalty",
    "sampling_seed": "seed",
}
"""Parameters that are served and do the same."""
OF_CHATS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("messages", "max_completion_tokens", "reasoning_effort"), OFF),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "chat_template_kwargs": ({},),
    "continue_final_message": FALSE,
    "modalities": (["text"],),
    "top_logprobs": ZERO,
}
"""Parameters of /v1/chat/completions that /v1/completions lacks, as `UNSERVED` has them."""
INSTEAD_OF_CHATS: Mapping[str, str] = {
    **dict.fromkeys(OF_CHATS, "it to /v1/chat/completions"),
    "max_completion_tokens": "max_tokens",
    "top_logprobs": "logprobs",
}
"""What to send in their place."""


def refuse(
    given: Mapping[str, Any],
    table: Mapping[str, tuple[Any, ...]] = UNSERVED,
    replacements: Mapping[str, str] = INSTEAD,
) -> None:
    """Raise `ValueError` for the first of some parameters that would have to change the answer."""
    for name, value in given.items():
        if value is not None and value not in table.get(name, (value,)):
            instead = f": send {replacements[name]}" if name in replacements else ""
            raise ValueError(f"{name} is not supported here{instead}")
