"""Progress of a distillation as JSON lines on stdout, with the time that is left."""

import json
import time
from typing import Any

EVERY_SECONDS = 1.0


class Progress:
    """Tells stages, how far they are, and how long the rest of each will take."""

    def __init__(self) -> None:
        self._stage = ""
        self._began, self._first, self._told = 0.0, 0, 0.0
        self._done = -1

    def stage(self, stage: str, done: int, total: int) -> None:
        """Tell `done` of `total` parts of a stage, at most once a second."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._first, self._told = stage, now, done, 0.0
        if now - self._told < EVERY_SECONDS and (done < total or done == self._done):
            return
        self._told, self._done = now, done
        fresh = done - self._first  # what an earlier run did says nothing of the speed of this one
        left = (now - self._began) / fresh * (total - done) if fresh > 0 else None
        self.tell(stage=stage, done=done, total=total, seconds_left=left)

    def note(self, text: str) -> None:
        """Tell a sentence."""
        self.tell(note=text)

    def tell(self, **fields: Any) -> None:
        """Print one JSON object on a line."""
        print(json.dumps(fields, allow_nan=False), flush=True)
