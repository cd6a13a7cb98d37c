"""Control tokens in texts: where their breaks are."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.api.control_tokens import BREAK, REPLACEMENT, ControlTokens

TOKENS = ("aa", "ab", "aab", "<|a|>", "<|", "b<", "x")


def broken_one_by_one(text: str) -> str:
    """Break the first control token, then do the same behind the break."""
    text, pieces = text.replace(BREAK, REPLACEMENT), []
    while begins := [at for at in map(text.find, TOKENS[:-1]) if at >= 0]:
        end = min(begins) + 1
        pieces.append(text[:end])
        text = text[end:]
    return BREAK.join([*pieces, text])


@given(st.text(st.sampled_from(f"ab<|>x\n{BREAK}"), max_size=40))
def test_breaks_are_those_of_one_token_after_the_other(text: str) -> None:
    assert ControlTokens.of(TOKENS).broken(text) == broken_one_by_one(text)


def test_tokens_that_overlap_are_broken_each() -> None:
    assert ControlTokens.of(TOKENS).broken("aaab").split(BREAK) == ["a", "a", "a", "b"]


def test_a_text_without_control_tokens_stays() -> None:
    assert ControlTokens.of(()).broken("aa <|a|>") == "aa <|a|>"
    assert ControlTokens.of(TOKENS).broken({"a": ["x", 1, None]}) == {"a": ["x", 1, None]}
