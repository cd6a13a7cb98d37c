"""The worked example of docs/concepts/speculation.md, driven through the code of both trees.

A draft and a target without models: what each says next is a table. Everything else, from ids to
the fate of a node, is what `outrider.worker.tree` makes of it. Leaves drawing to `drawing`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.tree.draft import NO_TOKENS, DraftTree
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.growth import Growth, Ids, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.mirror_table import ID_COUNT, committed_at
from outrider.worker.tree.walk import ROOT, committed_tokens, paths, walk

WORDS = ("sky", "is", "blue", "clear", "because", "of", "and", "light")
ROOT_POSITION = 11
GUESSES = {
    "is": {"blue": -0.3, "clear": -1.6},
    "blue": {"because": -0.4, "and": -1.5},
    "because": {"of": -0.2},
    "of": {"light": -0.4},
}
"""Words that the draft expects after a word, with their log-probabilities."""
WRITES = {"is": "blue", "blue": "because", "clear": "and", "because": "of"}
"""The word that the target samples after a word."""
DEPTH, NODES_AHEAD, ROWS = 8, 16, 64


@dataclass(frozen=True, slots=True)
class Node:
    """One draft token; `parent` is an id, 0 for the root."""

    id: int
    parent: int
    depth: int
    word: str


@dataclass(frozen=True, slots=True)
class Copy:
    """One side's copy of the tree."""

    text: tuple[str, ...]
    """Committed words from the example's first root on; the last is the root."""
    root_position: int
    nodes: tuple[Node, ...]
    sampled: dict[int, str] = field(default_factory=dict)
    """What the target samples in a verify pass, by the row's node, 0 for the root."""
    accepted: frozenset[int] = frozenset()
    """Nodes that the walk accepts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Both copies, what is on its way between them, and what became of each id at the target."""

    title: str
    draft: Copy
    target: Copy
    to_target: tuple[str, ...]
    to_draft: tuple[str, ...]
    fates: dict[int, str]


class Draft:
    """A draft that expands one leaf a pass."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.tree = DraftTree(len(tokens))
        self.rows = DraftRows(ROWS, DEPTH)
        self.slots = BlockTable(np.arange(4, dtype=np.int32), 0, 0, b"", False)

    def run_pass(self, new_nodes: int) -> Growth:
        """Expand the root or the best leaf, and send the best `new_nodes` children."""
        if self.tree.root_expanded:
            self.tree.expand(self.rows, self.slots, 1, DEPTH)
        else:
            committed = np.array(self.tokens, np.int32)
            count = self.tree.prefill(self.rows, self.slots, committed, ROWS)
            self.tree.mark_prefilled(count)
        rows = self.rows.take()
        guesses = GUESSES[WORDS[rows.token[rows.output][0]]]
        tokens = np.array([[WORDS.index(word) for word in guesses]], np.int32)
        logprobs = np.array([list(guesses.values())], np.float32)
        self.tree.offer(rows.leaf, rows.offset, tokens, logprobs)
        growth = self.tree.send(NODES_AHEAD, new_nodes, DEPTH)
        assert growth is not None
        return growth

    def commit(self, position: int, tokens: Ints) -> bool:
        """Take a commit; return True for a fall-in."""
        self.tokens += tokens.tolist()
        return self.tree.commit(position, tokens).fall_in

    def copy(self) -> Copy:
        nodes = self.tree.nodes
        listed = listing(nodes.id, nodes.parent, nodes.depth, nodes.token)
        return Copy(words(self.tokens), self.tree.root_position, listed)


class Target:
    """A target that verifies every node of its mirror."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.mirror = Mirror(len(tokens) - 1)

    def receive(self, growth: Growth) -> None:
        self.mirror.receive(growth, NODES_AHEAD, np.ones(len(WORDS), np.bool_))

    def verify(self) -> tuple[Ints, Ints, Ints]:
        """Run the root and all nodes: what is sampled at each, accepted, and to be committed."""
        mirror = self.mirror
        seen = [self.tokens[-1], *mirror.token.tolist()]
        sampled = np.array([WORDS.index(WRITES[WORDS[token]]) for token in seen], np.int32)
        rows = paths(mirror.parent, mirror.depth, np.arange(len(mirror), dtype=np.int32))
        accepted = walk(rows.parent, mirror.token, sampled, NO_TOKENS, limit=NODES_AHEAD)
        return sampled, accepted, committed_tokens(accepted, mirror.token, sampled)

    def commit(self, tokens: Ints) -> bool:
        """Move the root; return True for a fall-in."""
        self.tokens += tokens.tolist()
        return self.mirror.commit(tokens)

    def copy(self) -> Copy:
        mirror = self.mirror
        listed = listing(mirror.first_id, mirror.parent, mirror.depth, mirror.token)
        return Copy(words(self.tokens), mirror.root_position, listed)

    def verifying(self) -> Copy:
        """The copy during a verify pass."""
        copy = self.copy()
        sampled, accepted, _ = self.verify()
        ids = [0, *self.mirror.first_id.tolist()]
        return Copy(
            copy.text,
            copy.root_position,
            copy.nodes,
            {i: WORDS[token] for i, token in zip(ids, sampled, strict=True)},
            frozenset(ids[row + 1] for row in accepted),
        )

    def fates(self) -> dict[int, str]:
        """State of every id so far: what the mirror does not know is dead."""
        ids, state = self.mirror.tables.ids
        found = dict.fromkeys(range(1, self.mirror.last_id + 1), "dead")
        for i in range(int(self.mirror.tables.numbers[ID_COUNT])):
            live = state[i] >= 0
            found[int(ids[i])] = "live" if live else f"committed at {committed_at(state[i])}"
        return found


def listing(ids: Ids, parents: Ints, depths: Ints, tokens: Ints) -> tuple[Node, ...]:
    """Return nodes of a tree's columns; `parents` are indices there, `ROOT` for the root's."""
    return tuple(
        Node(int(i), int(ids[above]) if above != ROOT else 0, int(depth), WORDS[token])
        for i, above, depth, token in zip(ids, parents, depths, tokens, strict=True)
    )


def words(tokens: list[int]) -> tuple[str, ...]:
    return tuple(WORDS[token] for token in tokens[ROOT_POSITION:])


def grow(growth: Growth) -> str:
    """A `Grow` in words."""
    ids = range(growth.first_id, growth.first_id + len(growth.tokens))
    nodes = (
        f"{i} “{WORDS[token]}” below {above or 'the root'}"
        for i, above, token in zip(ids, growth.parents.tolist(), growth.tokens, strict=True)
    )
    return f"Grow, root at {growth.root_position}: {', '.join(nodes)}"


def moments() -> Iterator[Moment]:
    """The example, moment by moment."""
    prompt = [WORDS.index("sky")] * ROOT_POSITION + [WORDS.index("is")]
    draft, target = Draft(list(prompt)), Target(list(prompt))

    def moment(
        title: str,
        of_target: Copy | None = None,
        to_target: tuple[str, ...] = (),
        to_draft: tuple[str, ...] = (),
    ) -> Moment:
        mirror = of_target or target.copy()
        return Moment(title, draft.copy(), mirror, to_target, to_draft, target.fates())

    target.receive(draft.run_pass(2))
    target.receive(draft.run_pass(1))
    yield moment("Nodes 1 to 3 have arrived: both copies are equal")

    crossing = draft.run_pass(2)
    yield moment(
        "The target verifies four rows; the draft grows on", target.verifying(), (grow(crossing),)
    )

    position = target.mirror.root_position
    *_, committed = target.verify()
    fall = "fall-in" if target.commit(committed) else "fall-out"
    told = (f"Commit after {position}: {' '.join(WORDS[token] for token in committed)}",)
    yield moment(
        f"The target commits {len(committed)} tokens at once: a {fall} there",
        to_target=(grow(crossing),),
        to_draft=told,
    )

    target.receive(crossing)
    last = draft.run_pass(1)
    yield moment(
        "What had been sent before arrives: 4 is committed too, 5 is dead",
        to_target=(grow(last),),
        to_draft=told,
    )

    target.receive(last)
    yield moment("Node 6 arrives: its parent is the root, so it is live", to_draft=told)

    fall = "fall-in" if draft.commit(position, committed) else "fall-out"
    yield moment(f"The Commit arrives at the draft: a {fall}, and both copies are equal")
