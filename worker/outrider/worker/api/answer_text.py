"""Text of one answer, made as its tokens come: it ends with the token that completes a stop string.

Leaves characters and stop strings to `text`, limits on lines to `line_limits`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.worker.api.line_limits import LineLimits
from outrider.worker.api.text import Detokenizer, StopStrings


@dataclass(slots=True)
class AnswerText:
    """Reader of one answer's tokens."""

    detokenizer: Detokenizer
    stops: StopStrings | LineLimits
    pieces: deque[str] = field(default_factory=deque)
    """Text of each message with tokens that has not been taken from here."""
    ended: bool = False
    """Whether a stop string or a limit on its lines has ended it."""
    hidden: frozenset[int] = frozenset()
    """Tokens that end the answer without being part of its text."""
    least: int = 0
    """Tokens among which no stop string is looked for."""
    first: str = ""
    """Text before that of the first token."""
    _tokens: int = 0
    """Number of tokens that have come."""

    def read(self, ids: Sequence[int]) -> int:
        """Take the next tokens; return how many of them belong to the answer."""
        shown, count, self.first = self.first, 0, ""
        while count < len(ids) and not self.ended:
            token = ids[count]
            piece = "" if token in self.hidden else self.detokenizer.push((token,))
            self._tokens += 1
            if self._tokens > self.least:
                piece, self.ended = self.stops.push(piece)
            shown, count = shown + piece, count + 1
        self.pieces.append(shown)
        return count

    def finish(self) -> str:
        """Return all that is left to show at the end."""
        return "" if self.ended else self.stops.finish()
