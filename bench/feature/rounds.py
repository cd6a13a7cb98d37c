"""Passes of the target over a recorded chat: how many tokens each commits, and what is shipped.

Two ways to draft: anew after each commit, when the features of all committed tokens have come, as
EAGLE does; and ahead, while the target verifies, as this project does.
"""

from dataclasses import dataclass

import numpy as np

from bench.feature.growing import GrowingDraft, Guesser, Passes
from outrider.distil.shards import ANSWERED, Chat
from outrider.worker.link.payloads import for_draft, for_target
from outrider.worker.link.wire import Commit, Grow

ROWS = 8
"""Nodes that one pass verifies."""
FEATURE_BYTES = 2
"""Of each number of a feature: fp16."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How a draft runs ahead of the target."""

    passes: int
    """Of the draft, while the target makes one."""
    width: int = 8
    nodes: int = 24
    """Live nodes at most, as in examples/smollm2.yaml."""
    new: int = 8
    """Nodes of one draft pass at most."""


@dataclass(slots=True)
class Tally:
    """Sums over chats."""

    committed: int = 0
    passes: int = 0
    """Of the target."""
    blind: int = 0
    """Those without a node."""
    draft_passes: int = 0
    draft_rows: int = 0
    to_draft_bytes: int = 0
    to_target_bytes: int = 0

    @property
    def tokens_per_pass(self) -> float:
        return self.committed / self.passes

    def add(self, draft: GrowingDraft, committed: list[int]) -> None:
        """Add a chat that was drafted to its end; `committed` tokens by pass."""
        self.committed += sum(committed)
        self.passes += len(committed)
        self.draft_passes += draft.passes
        self.draft_rows += draft.rows
        hidden = draft.guesser.draft.config.hidden * draft.guesser.draft.sees_features
        for count in committed:
            tokens = np.full(count, 1000, np.int32)
            self.to_draft_bytes += sum(map(len, for_draft([Commit(1, 200, tokens)])))
            self.to_draft_bytes += count * hidden * FEATURE_BYTES
        for growth in draft.growth:
            self.to_target_bytes += len(for_target([Grow(1, growth)]))

    def figures(self) -> dict[str, float]:
        """Return what the report says."""
        to_draft = self.to_draft_bytes / self.committed
        to_target = self.to_target_bytes / self.committed
        return {
            "committed": self.committed,
            "tokens_per_pass": self.tokens_per_pass,
            "blind_share": self.blind / self.passes,
            "draft_passes_per_pass": self.draft_passes / self.passes,
            "draft_rows_per_pass": self.draft_rows / self.passes,
            "bytes_to_draft_per_token": to_draft,
            "bytes_to_target_per_token": to_target,
            "tokens_per_pass_per_kilobyte": self.tokens_per_pass / (to_draft + to_target) * 1e3,
        }


def first_root(chat: Chat) -> int:
    """Return the position of the prompt's last token."""
    return int(np.argmax(chat.writers == ANSWERED)) - 1


def draft_anew(guesser: Guesser, chat: Chat, tally: Tally) -> Passes[None]:
    """Grow the best `ROWS` nodes, one by one, after each commit."""
    draft = GrowingDraft(guesser, chat)
    yield from draft.begin(first_root(chat))
    committed: list[int] = []
    while True:
        for _ in range(ROWS - 1):
            yield from draft.grow(1, ROWS, 1)
        draft.send(ROWS, 1)
        committed.append(1 + draft.accepted(draft.best(ROWS)))
        if draft.root + committed[-1] >= len(chat.tokens) - 2:
            break
        yield from draft.begin_again(committed[-1])
    tally.add(draft, committed)


def draft_ahead(guesser: Guesser, chat: Chat, plan: Ahead, tally: Tally) -> Passes[None]:
    """Grow one tree without pause; commits, and the features with them, come a pass later."""
    draft = GrowingDraft(guesser, chat)
    yield from draft.begin(first_root(chat))
    draft.send(plan.nodes, plan.new)
    committed: list[int] = []
    spent = 0
    while draft.root < len(chat.tokens) - 2:
        rows = draft.best(ROWS)
        tally.blind += not rows
        count = 1 + draft.accepted(rows)
        while spent < plan.passes and (yield from draft.grow(plan.width, plan.nodes, plan.new)):
            spent += 1
        draft.send(plan.nodes, plan.new)
        committed.append(count)
        tokens = draft.chat.tokens[draft.root + 1 : draft.root + 1 + count]
        spent = int((yield from draft.commit(tokens)))
        draft.send(plan.nodes, plan.new)
    tally.add(draft, committed)
