r"""The tokenizer of a GGUF file: which ids a text has, as llama.cpp has them.

Vocabulary and merges are left to `transformers`. A GGUF names the rule that cuts text into words
(`tokenizer.ggml.pre`); `RULES` has it for each name. Some names stand for the same rule, and a
rule of several patterns applies each to the pieces that those before it have left. What the file
does not say has llama.cpp's defaults (its src/llama-vocab.cpp, build 0.3.36 of llama-cpp-python;
tests/unit/worker/checkpoints/gguf_ids.json holds ids that it recorded).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from outrider.worker.errors import ModelError

if TYPE_CHECKING:
    from outrider.worker.checkpoints.gguf_file import GgufModel

SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Names of the special tokens: that of transformers, and GGUF's."""
MODEL, PRE, MERGES = (f"tokenizer.ggml.{key}" for key in ("model", "pre", "merges"))
FIM = {"pre": "prefix", "suf": "suffix", "mid": "middle", "pad": "", "rep": "", "sep": ""}
"""Roles of tokens to fill in the middle (`tokenizer.ggml.fim_pre_token_id`), and older names."""
FIM_IDS = "fim_token_ids"
"""Field of tokenizer_config.json that has such ids by role."""
KINDS = ("gpt2", "llama")
"""Values of `tokenizer.ggml.model`: byte-level BPE, and SentencePiece."""

_ENGLISH = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_HAN_KANA = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
_HAN_HANGUL = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
_PUNCTUATED = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+"


def _words(
    digits: str, english: str = rf"(?:{_ENGLISH})|", letter: str = r"\p{L}", lines: str = r"[\r\n]*"
) -> str:
    """The rule of GPT-4 and of those after it, by how digits and letters are grouped, and by the
    line breaks that punctuation takes along."""
    return (
        rf"{english}[^\r\n\p{{L}}\p{{N}}]?[{letter}]+|{digits}"
        rf"| ?[^\s{letter}\p{{N}}]+{lines}{_SPACES}"
    )


def _cased(digits: str, suffix: str) -> str:
    """The rule of GPT-4o: a word ends where lower case meets upper case."""
    first = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{first}{_UPPER}*{_LOWER}+{suffix}|{first}{_UPPER}+{_LOWER}*{suffix}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_SPACES}"
    )


_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*{_SPACES}"
)
_CASED_LETTERS = (
    r"[\p{Lu}\p{Ll}\p{Lt}&&[^\x{560}-\x{588}\x{10c6}-\x{10ff}\x{1c80}-\x{1c8f}\x{2d00}-\x{2d2d}"
    r"\x{a790}-\x{a7fa}\x{ab30}-\x{ab68}\x{10570}-\x{105bf}\x{10d50}-\x{10d85}\x{16e40}-\x{16e7f}"
    r"\x{1d400}-\x{1d7cb}\x{1df00}-\x{1dfff}]]"
)
"""Without Georgian, mathematical alphabets, and what Unicode has added since 2016."""


class Rule(NamedTuple):
    """How text is cut into words, and what a file that does not say means."""

    patterns: tuple[str, ...]
    """What each isolates, of the pieces that those before it have left."""
    whole_words: bool = False
    """A word that is a token is that token, whatever its merges say."""
    begins: bool = False
    """A text begins with the BOS token."""


_DIGITS_APART = Rule((r"\p{N}", _GPT2))
_PLAIN = Rule((_GPT2,))
_LLAMA3 = Rule((_words(r"\p{N}{1,3}"),))
_QWEN2 = Rule((_words(r"\p{N}"),))
_DEFAULT = Rule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_NAMES = {
    "default": _DEFAULT,
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2": Rule(
        _LLAMA3.patterns, True, True
    ),
    "dbrx smaug-bpe chatglm-bpe": _LLAMA3,
    "glm4": Rule(_LLAMA3.patterns, True),
    "minicpm5": Rule((r"\p{N}{1,3}", _words(r"\p{N}+")), True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open": _QWEN2,
    "qwen35": Rule((_words(r"\p{N}", letter=r"\p{L}\p{M}"),)),
    "ufakzeka": Rule((_words(r"\p{N}", english=""),)),
    "laguna": Rule((r"[^\n]+|[\n]+", *_QWEN2.patterns)),
    "gpt-2 phi-2 gigachat a.x-4.0 mellum olmo exaone4 trillion granite-docling": _PLAIN,
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": _DIGITS_APART,
    "tekken": Rule((_cased(r"\p{N}", ""),), True, True),
    "gpt-4o llama4 kanana2 minimax-m2": Rule((_cased(r"\p{N}{1,3}", f"(?:{_ENGLISH})?"),)),
    "deepseek-llm": Rule(
        (
            "[\r\n]",
            rf"\s?{_CASED_LETTERS}+",
            r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
            r"\s+$",
            _HAN_HANGUL,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Rule(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_HANGUL, r"\p{N}")),
    "deepseek-v3 hunyuan-dense joyai-llm": Rule((r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3)),
    "seed-coder": Rule((_words(r"\p{N}", lines=""),)),
    "viking": Rule((_PUNCTUATED, r"\p{N}")),
    "poro-chat": Rule((_PUNCTUATED,)),
    "superbpe": Rule((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
}
RULES = {name: rule for names, rule in _NAMES.items() for name in names.split()}
"""Each name that `tokenizer.ggml.pre` may have, and its rule."""


def tokenizer_of(model: "GgufModel") -> Any:
    """Return transformers' tokenizer, of metadata that `gguf` reads: `AutoTokenizer` needs torch.

    Raises `ModelError`, and `ValueError` or `LookupError` for metadata of which none can be built.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

    fields = _named(model, GGUF_TOKENIZER_MAPPING["tokenizer"])
    config = _named(model, GGUF_TOKENIZER_MAPPING["tokenizer_config"])
    rule = rule_of(model)
    config.setdefault("add_bos_token", rule is None or rule.begins)
    for name, key in SPECIAL.items():
        token = model.value(f"tokenizer.ggml.{key}_token_id", None)
        config[f"{name}_token"] = None if token is None else fields["tokens"][token]
    if fim := _fim_ids(model):
        config[FIM_IDS] = fim
    backend, _ = convert_gguf_tokenizer(model.architecture, fields)
    if rule is None:
        _cut_as_sentencepiece(backend, bool(fields.get("add_prefix_space", True)))
    else:
        _cut_by(rule, backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **config)


def rule_of(model: "GgufModel") -> Rule | None:
    """Return the rule of a byte-level vocabulary, None of a SentencePiece one.

    Raises `ModelError` for any other kind or rule, and for a byte-level one without merges.
    """
    kind, where = model.value(MODEL), f"{model.path}: "
    if kind not in KINDS:
        allowed = ", ".join(KINDS)
        raise ModelError(f"{where}{MODEL} {kind!r} is not supported; allowed: {allowed}")
    if kind == "llama":
        return None
    if not model.value(MERGES, None):
        raise ModelError(f"{where}metadata {MERGES} is missing, which byte-level BPE needs")
    if (name := model.value(PRE, "default")) not in RULES:
        allowed = ", ".join(sorted(RULES))
        raise ModelError(f"{where}{PRE} {name!r} is not supported; allowed: {allowed}")
    return RULES[name]


def _fim_ids(model: "GgufModel") -> dict[str, int]:
    """Return the ids of the tokens to fill in the middle that a file names, by role."""
    found: dict[str, int] = {}
    for role, older in FIM.items():
        for name in (f"fim_{role}", older):
            if (token := model.value(f"tokenizer.ggml.{name}_token_id", None)) is not None:
                found.setdefault(role, int(token))
    return found


def _cut_by(rule: Rule, backend: Tokenizer) -> None:
    cuts = [pre_tokenizers.Split(Regex(each), "isolated") for each in rule.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    backend.model.ignore_merges = rule.whole_words


def _cut_as_sentencepiece(backend: Tokenizer, prefix: bool) -> None:
    """Write spaces as ▁, and with `prefix` one more where a text begins or a special token ends."""
    before = [normalizers.Prepend("▁")] if prefix else []
    after = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = None
    whole = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*whole, *after])


def _named(model: "GgufModel", names: dict[str, str]) -> dict[str, Any]:
    """Return the metadata that is there under transformers' names; `names` has them by GGUF's."""
    found = {name: model.value(f"tokenizer.{key}", None) for key, name in names.items()}
    return {name: value for name, value in found.items() if value is not None}
