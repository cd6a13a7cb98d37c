"""Answers to each API key, for later requests with the same key.

Also those that their client broke off: a suggestion that is typed over is asked for again. No text
of another key is found. Whether the source rests, how sure it is, and the room for so many keys are
common to all. Leaves the search in them to `speculation/answer_source`.
"""

from dataclasses import dataclass, field

from outrider.worker.messages import NO_KEY, Finish, Submit
from outrider.worker.speculation.answer_index import GRAM, NO_ANSWERS, ROOM, AnswerIndex, write
from outrider.worker.target.sequence import Sequence

MOST_KEYS = 64
"""Keys whose answers are kept, at 0.9 MB each: those that were used last."""
KEPT = Finish.STOP, Finish.LENGTH, Finish.CANCELLED
"""Ends of answers that are kept."""


@dataclass(slots=True)
class FinishedAnswers:
    """An index for each key."""

    _by_key: dict[int, AnswerIndex] = field(default_factory=dict)
    """In the order of their last use."""

    def of(self, submit: Submit) -> AnswerIndex:
        """Return the index in which a request's text may be looked up, and its answer is kept; one
        without room where it has no key, or wants no draft tokens."""
        if submit.key == NO_KEY or not submit.speculate:
            return NO_ANSWERS
        index = self._by_key.pop(submit.key, None)
        if index is None:
            index = AnswerIndex.empty(ROOM)
        self._by_key[submit.key] = index
        if len(self._by_key) > MOST_KEYS:
            del self._by_key[next(iter(self._by_key))]
        return index

    def forget(self) -> None:
        """Forget all of them."""
        self._by_key.clear()


def keep(sequence: Sequence, finish: Finish) -> None:
    """Keep the answer of a sequence that has ended so, if it may be kept.

    With the last tokens of its prompt, so that its first token can be found.
    """
    if finish in KEPT and len(sequence.answers.tokens):
        first = max(0, sequence.prompt_length - GRAM)
        write(sequence.answers, sequence.tokens, first, sequence.length)
