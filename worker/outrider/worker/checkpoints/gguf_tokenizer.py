"""The tokenizer in a GGUF file's metadata, as `transformers` builds it.

`AutoTokenizer` reads the file with torch, of which a tokenizer needs nothing: here the `gguf`
package reads it. Names, vocabulary, merges and splitting rules are left to `transformers`.
"""

from typing import Any

from outrider.worker.checkpoints.gguf_file import GgufModel

SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""transformers' name of each special token, and GGUF's."""


def tokenizer_of(model: GgufModel) -> Any:
    """Return transformers' tokenizer.

    Raises `ValueError` or `LookupError` for metadata of which none can be built.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

    fields = _named(model, GGUF_TOKENIZER_MAPPING["tokenizer"])
    config = _named(model, GGUF_TOKENIZER_MAPPING["tokenizer_config"])
    if fields.get("tokenizer_type") == "llama":
        config.setdefault("add_bos_token", True)  # as llama.cpp where the file does not say
    for name, key in SPECIAL.items():
        token = model.metadata(f"tokenizer.ggml.{key}_token_id")
        config[f"{name}_token"] = None if token is None else fields["tokens"][token]
    backend, _ = convert_gguf_tokenizer(model.architecture, fields)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **config)


def _named(model: GgufModel, names: dict[str, str]) -> dict[str, Any]:
    """Return the metadata that is there under transformers' names; `names` has them by GGUF's."""
    found = {name: model.metadata(f"tokenizer.{key}") for key, name in names.items()}
    return {name: value for name, value in found.items() if value is not None}
