"""The two bodies that llama.vim sends to /infill by default (its autoload/llama.vim, a1c8e6e)."""

from typing import Any

FIELDS = [
    "content",
    *(f"timings/prompt_{name}" for name in ("n", "ms", "per_token_ms", "per_second")),
    *(f"timings/predicted_{name}" for name in ("n", "ms", "per_token_ms", "per_second")),
    "truncated",
    "tokens_cached",
]
CHUNK = {"text": "import os\n\nROOT = os.getcwd()\n", "time": [12, 34], "filename": "paths.py"}


def warm_up(*extra: dict[str, Any]) -> dict[str, Any]:
    """Has the server read chunks of other files."""
    return {
        "id_slot": 0,
        "input_prefix": "",
        "input_suffix": "",
        "input_extra": list(extra),
        "prompt": "",
        "n_predict": 0,
        "temperature": 0.0,
        "samplers": [],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 1,
        "t_max_predict_ms": 1,
        "response_fields": [""],
    }


def completion(prefix: str, suffix: str, line: str, *extra: dict[str, Any]) -> dict[str, Any]:
    """Asks for what comes where the cursor is; `line` is before it in its line."""
    return {
        "id_slot": 0,
        "input_prefix": prefix,
        "input_suffix": suffix,
        "input_extra": list(extra),
        "prompt": line,
        "n_predict": 128,
        "stop": [],
        "n_indent": len(line) - len(line.lstrip()),
        "top_k": 40,
        "top_p": 0.90,
        "samplers": ["top_k", "top_p", "infill"],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 250,
        "response_fields": FIELDS,
    }
