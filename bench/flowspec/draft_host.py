"""A simulated draft: the real scheduler and trees, whose passes take the setting's time."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flowspec.language import Language
from bench.flowspec.network import Clock
from outrider.worker.draft.batch import DraftBatch, DraftPart
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import BRANCH
from outrider.worker.engine.runner import TopChildren
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.link.wire import Commit, Grow, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.walk import ROOT

LINK, SESSION = 1, 1
Bools = NDArray[np.bool_]


def allowed(language: Language) -> Bools:
    """Return the tokens that may be proposed: all."""
    return np.ones(language.vocabulary, np.bool_)


class DraftHost:
    """A draft of one session."""

    def __init__(
        self,
        clock: Clock,
        language: Language,
        limits: "tuple[int, int]",
        seconds: Callable[[int], float],
        send: Callable[[Growth], None],
    ) -> None:
        """`limits`: width, and nodes ahead; `seconds` of a pass of so many rows."""
        self._clock = clock
        self._language = language
        self._limits = limits
        self._seconds = seconds
        self._send = send
        self._running = False
        self._arrived: deque[Open | Commit] = deque()
        """During a pass."""
        longest = len(language.text) + 1024
        kv_cache = HostKVCache((1, 1, 1), blocks_for(longest), longest, prefix_cache=False)
        buffer = SendBuffer(self._sent, is_direct=lambda link: True)
        self._scheduler = DraftScheduler(kv_cache, longest, 1, language.vocabulary, buffer)
        self._scheduler.sessions.link_up(LINK, allowed(language))
        self.passes = 0

    def open(self, prompt: Ints) -> None:
        """Begin the session with its prompt."""
        width, nodes = self._limits
        limits = Limits(SESSION, depth=32, width=width, nodes_ahead=nodes, error_scale=1.0)
        self._apply(Open(SESSION, prompt, SamplingParams(), limits, len(prompt)))

    def commit(self, commit: Commit) -> None:
        """Hear what was committed."""
        self._apply(commit)

    def _apply(self, message: Open | Commit) -> None:
        self._arrived.append(message)
        if not self._running:
            self._run()

    def _run(self) -> None:
        while self._arrived:
            self._scheduler.apply(LINK, self._arrived.popleft(), self._clock.now)
        batch = self._scheduler.next(self._clock.now)
        if batch is None:
            return
        self._running = True
        self.passes += 1
        outputs = [self._children(part) for part in batch.parts]
        self._clock.after(self._seconds(batch.rows.count), lambda: self._settle(batch, outputs))

    def _settle(self, batch: DraftBatch, outputs: Sequence[TopChildren]) -> None:
        self._running = False
        self._scheduler.settle(batch, outputs, self._clock.now)
        self._run()

    def _children(self, part: DraftPart) -> TopChildren:
        """Return the guesses after each leaf of a part."""
        tree, leaves = part.session.tree, part.leaves
        if not len(leaves):
            return TopChildren(np.zeros((0, BRANCH), np.int32), np.zeros((0, BRANCH), np.float32))
        root = self._language.keys[tree.root_position]
        paths = tree.path_tokens(leaves)
        found = []
        for leaf, path in zip(leaves.tolist(), paths.tolist(), strict=True):
            tokens = [token for token in path if token >= 0] if leaf != ROOT else []
            found.append(self._language.children(self._language.key(root, tokens), BRANCH))
        tokens_of, logprobs = zip(*found, strict=True)
        return TopChildren(np.stack(tokens_of), np.stack(logprobs))

    def _sent(self, link: int, messages: Sequence[Any]) -> None:
        for message in messages:
            if isinstance(message, Grow):
                self._send(message.growth)
