"""What sessions need of the sequences that drafts grow for, and of what decides over drafts."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import PolicySettings
from outrider.worker.messages import Submit
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.target.answer import TargetSession
from outrider.worker.tree.mirror import Mirror


class DraftedSequence(Protocol):
    """What sessions need of a sequence, whatever runs its passes."""

    session: TargetSession | None
    not_before: dict[int, float]
    """By link: earliest time to open another session on it, after its draft closed one."""
    committed_at: float
    growths: int
    grew_at: float

    @property
    def submit(self) -> Submit: ...
    @property
    def mirror(self) -> Mirror: ...
    @property
    def length(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def needs_prefill(self) -> bool: ...

    def committed(self) -> NDArray[np.int32]:
        """Return a copy of all committed tokens."""

    def drop_session(self) -> None:
        """Forget the session, and the ids of its nodes."""


class DraftControl(Protocol):
    """Decides what drafts may do, by what sessions see of them."""

    @property
    def policy(self) -> PolicySettings: ...
    @property
    def scale(self) -> ErrorScale: ...

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy."""

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""

    def saw_latency(self, seconds: float) -> None:
        """Learn how long after a commit the first growth that knows it comes."""

    def saw_period(self, seconds: float) -> None:
        """Learn how long after growth of a root the next comes."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn what the first growth of a root is worth."""
