"""Reading of a sequence's text by its suffix automaton, so much a step.

A token takes 0.25 µs (Zen 5), and a prompt whose KV was cached comes all at once: 100,000 tokens
held a step up by 25 ms. Leaves what is found there to `speculation/suffix_source`.
"""

from outrider.worker.speculation.suffix_automaton import READ, clear
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import read_text

MOST_TOKENS = 256
"""That a sequence reads in one step while it decodes."""


def is_near(sequence: Sequence, length: int, most: int = MOST_TOKENS) -> bool:
    """True if no more than `most` of the first `length` tokens are left to read."""
    suffix = sequence.suffix
    return length - suffix.numbers.item(READ) <= most or len(suffix.length) == 0


def read_on(sequence: Sequence, length: int, most: int = MOST_TOKENS) -> bool:
    """If that is near, return True; else read `most` tokens towards it.

    Of a text that is longer than what fits it begins with the later half of that.
    """
    if is_near(sequence, length, most):
        return True
    suffix = sequence.suffix
    read, held = suffix.numbers.item(READ), len(suffix.length) // 2
    if length - read > held:
        if read:
            clear(suffix)
        read = length - held // 2
        suffix.numbers[READ] = read
    read_text(sequence.tree, min(read + most, length))
    return False
