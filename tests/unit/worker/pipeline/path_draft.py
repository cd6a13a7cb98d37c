"""A draft without a model: it grows a tree of whatever tokens it is told, and hears late."""

from collections import deque
from collections.abc import Callable

import numpy as np

from outrider.worker.tree.growth import Growth

Path = tuple[int, ...]


class PathDraft:
    """One session: ids, each with its path from the sequence's first token."""

    def __init__(self, tokens: Path) -> None:
        self.tokens = tokens
        self.nodes: dict[int, Path] = {}
        self.next_id = 1
        self.sent: deque[Growth] = deque()
        """Growth on its way."""

    @property
    def live(self) -> dict[int, Path]:
        """Nodes below the root that the draft knows."""
        root = self.tokens
        return {i: path for i, path in self.nodes.items() if path[: len(root)] == root != path} | {
            0: root
        }

    def hear(self, tokens: Path) -> None:
        """Take all tokens committed so far."""
        self.tokens = tokens
        self.nodes = {i: path for i, path in self.live.items() if i}

    def grow(self, pick: Callable[[int], int], token: Callable[[Path], int], most: int) -> None:
        """Send up to `most` new nodes; `pick` chooses one of so many parents."""
        parents: list[int] = []
        tokens: list[int] = []
        first_id = self.next_id
        for _ in range(most):
            live = self.live
            parent = sorted(live)[pick(len(live))]
            path = (*live[parent], token(live[parent]))
            if path in live.values():
                continue
            self.nodes[self.next_id] = path
            self.next_id += 1
            parents.append(parent)
            tokens.append(path[-1])
        logprobs = np.array([-0.1 * (1 + i % 7) for i in range(len(tokens))], np.float32)
        ids = np.array(parents, np.int64)
        self.sent.append(
            Growth(len(self.tokens) - 1, first_id, ids, np.array(tokens, np.int32), logprobs)
        )
