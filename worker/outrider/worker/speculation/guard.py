"""Guard: an account of the time that drafting may lose against plain decoding.

Pure: seconds come in as numbers. Leaves what is tried, and when, to `switch`.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class LossGuard:
    """Earns a share of the time spent, and pays what was lost: all losses together stay within
    that share and the advance."""

    share: float = 0.03
    """Of the seconds spent, what may be lost."""
    advance: float = 2.0
    """Seconds that may be lost before anything was earned; also the most that is saved up."""
    unearned: float = 0.0
    """Seconds spent that are not in the account yet; callers add to it."""
    _spare: float = field(init=False)

    def __post_init__(self) -> None:
        self._spare = self.advance

    @property
    def spare(self) -> float:
        """Seconds that may be lost now; not positive: none."""
        self._spare = min(self._spare + self.share * self.unearned, self.advance)
        self.unearned = 0.0
        return self._spare

    def lose(self, seconds: float) -> None:
        """Count a loss; a gain, which is negative, earns nothing."""
        self._spare = self.spare - max(0.0, seconds)

    def affords(self, seconds: float) -> bool:
        """True if a loss of so many seconds is covered, or of all that can be saved up."""
        return self.spare >= min(seconds, self.advance)


@dataclass(slots=True)
class Balance:
    """Time of steps with drafts, against what plain decoding would have taken."""

    plain: float = 0.0
    """Seconds of plain decoding for the same tokens, by the step costs."""
    spent: float = 0.0

    def loss(self, scale: float) -> float:
        """Return the seconds lost; `scale`: of plain decoding, over those of the step costs."""
        return self.spent - scale * self.plain
