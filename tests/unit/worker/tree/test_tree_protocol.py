"""Both copies of a tree, driven through delays, bursts, joined commits and lost links.

The draft's KV is simulated: a slot holds the whole context that its row saw.
"""

import random
from collections import deque

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.tree.draft import DraftTree, Reroot
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.walk import ROOT

VOCABULARY = 4
CAPACITY = 40
LOCAL_CAPACITY = 12
ALLOWED = np.ones(VOCABULARY, np.bool_)
ROWS = 512
"""Rows of a draft's pass, more than any schedule makes."""
TABLE = BlockTable(np.arange(16, dtype=np.int32), 0, 0, b"", False)
"""Slots are offsets."""

Context = tuple[int, ...]


class Draft:
    """A draft worker without a model: its nodes and their order are random."""

    def __init__(self, tokens: list[int], limits: tuple[int, int, int]) -> None:
        self.tokens = list(tokens)
        self.tree = DraftTree(len(tokens), CAPACITY, candidate_capacity=24)
        self.depth, self.width, self.ahead = limits
        self.kv: dict[int, Context] = {}
        self.rows_run = 0
        self.rows_due = len(tokens) - 1
        self.rows = DraftRows(ROWS, ROWS)

    @property
    def pending(self) -> int:
        """Committed tokens before the root that have to run."""
        return max(self.tree.root_position - self.tree.cached, 0)

    def run_pass(self, rng: random.Random, max_new_nodes: int) -> Growth | None:
        """One pass: catch up, expand leaves, send."""
        if self.ahead == 0:
            return None
        if not self.tree.root_expanded:
            tokens = np.array(self.tokens, np.int32)
            count = self.tree.prefill(self.rows, TABLE, tokens, ROWS)
            self.tree.mark_prefilled(count)
        else:
            count = self.tree.expand(self.rows, TABLE, self.width, self.depth)
        rows = self.rows.take()
        self.rows_run += count
        self.rows_due += len(rows.output)
        self._run(rng, rows)
        return self.tree.send(self.ahead, max_new_nodes, self.depth)

    def _run(self, rng: random.Random, rows: RowColumns) -> None:
        taken = {node.slot for node in self.nodes().values() if node.slot >= 0}
        for i in range(len(rows.token)):
            path = rows.ancestors[i, : rows.depth[i]].tolist()
            seen = [*range(rows.prefix[i]), *path]  # the row's own slot is the last
            assert seen[-1] == rows.slot[i] not in taken
            above = self.kv[seen[-2]] if len(seen) > 1 else ()
            assert all(self.kv[s] == above[: j + 1] for j, s in enumerate(seen[:-1]))
            assert len(above) == rows.position[i]
            assert (rows.ancestors[i, rows.depth[i] :] == -1).all()
            self.kv[int(rows.slot[i])] = (*above, int(rows.token[i]))
        assert (rows.sampled_at == rows.position[rows.output] + 1).all()
        children = min(3, VOCABULARY)
        tokens = [rng.sample(range(VOCABULARY), children) for _ in rows.leaf]
        logprobs = [[-rng.random() * 3 for _ in range(children)] for _ in rows.leaf]
        self.tree.offer(
            rows.leaf,
            rows.offset,
            np.array(tokens, np.int32).reshape(-1, children),
            np.array(logprobs, np.float32).reshape(-1, children),
        )

    def commit(self, position: int, tokens: list[int]) -> Reroot:
        """Apply a commit and the moves of KV that it asks for."""
        rooted = self.tree.root_expanded
        due = self.pending
        done = self.tree.commit(position, np.array(tokens, np.int32))
        self.tokens += tokens
        values = [self.kv[int(s)] for s in done.sources]
        for slot, value in zip(done.destinations, values, strict=True):
            self.kv[int(slot)] = value
        if done.fall_in:
            assert self.pending == 0
        elif rooted:
            assert self.pending in (
                len(tokens) - 1 - done.matched,
                len(tokens) - done.matched,  # the last match was a leaf
            )
        self.rows_due += self.pending - due
        return done

    def nodes(self) -> dict[int, "Node"]:
        """Live nodes by id."""
        columns = self.tree.nodes
        context: list[Context] = []
        nodes: dict[int, Node] = {}
        for i in range(len(self.tree)):
            above = columns.parent[i]
            path = tuple(self.tokens) if above == ROOT else context[above]
            context.append((*path, int(columns.token[i])))
            nodes[int(columns.id[i])] = Node(
                0 if above == ROOT else int(columns.id[above]),
                int(columns.depth[i]),
                float(columns.logprob[i]),
                context[i],
                int(columns.slot[i]),
            )
        return nodes


class Node(tuple[int, int, float, Context, int]):
    """Parent id, depth, log-probability, context and slot of one node."""

    __slots__ = ()

    def __new__(
        cls, parent: int, depth: int, logprob: float, context: Context, slot: int = -1
    ) -> "Node":
        return super().__new__(cls, (parent, depth, logprob, context, slot))

    @property
    def slot(self) -> int:
        """The draft's slot, -1 for none."""
        return self[4]

    @property
    def shared(self) -> tuple[int, int, float, Context]:
        """Fields that both copies have."""
        return self[:4]


class World:
    """A target's mirror, a draft, and a link with as much delay as the schedule likes."""

    def __init__(self) -> None:
        self.tokens = [1, 2, 3]
        self.mirror = Mirror(len(self.tokens) - 1, CAPACITY, LOCAL_CAPACITY)
        self.to_draft: deque[tuple[str, int, tuple[int, ...]]] = deque()
        self.to_target: deque[Growth] = deque()
        self.limits = (6, 3, 12)
        self.draft: Draft | None = Draft(self.tokens, self.limits)
        self.granted = self.limits[2]
        self.used_ids: set[int] = set()
        self.fall_ins = self.fall_outs = self.rebased = 0

    def draft_pass(self, rng: random.Random) -> None:
        """The draft grows, if it may."""
        assert self.draft is not None
        growth = self.draft.run_pass(rng, rng.randint(1, 6))
        if growth is not None:
            ids = set(range(growth.first_id, growth.first_id + len(growth.tokens)))
            assert not ids & self.used_ids
            self.used_ids |= ids
            self.to_target.append(growth)

    def draft_hears(self) -> None:
        """The oldest message to the draft arrives."""
        assert self.draft is not None
        kind, position, values = self.to_draft.popleft()
        if kind == "limits":
            self.draft.depth, self.draft.width, self.draft.ahead = values
        else:
            self.draft.commit(position, list(values))

    def target_hears(self) -> None:
        """The oldest growth arrives; an honest draft never breaks a rule."""
        growth = self.to_target.popleft()
        before = len(self.mirror)
        dropped = self.mirror.receive(growth, self.granted, ALLOWED)
        if growth.root_position < self.mirror.root_position:
            self.rebased += len(self.mirror) - before
        else:
            assert dropped == 0

    def target_commits(self, rng: random.Random) -> None:
        """The target commits some tokens, along the mirror as far as luck goes."""
        parent, token = self.mirror.parent, self.mirror.token
        node, lost = ROOT, False
        tokens: list[int] = []
        for _ in range(rng.randint(1, 4)):
            children = np.flatnonzero(parent == node)
            lost = lost or len(children) == 0 or rng.random() < 0.2
            if not lost:
                node = int(rng.choice(list(children)))
            tokens.append(rng.randrange(VOCABULARY) if lost else int(token[node]))
        position = len(self.tokens) - 1
        self.tokens += tokens
        if self.mirror.commit(np.array(tokens, np.int32)):
            self.fall_ins += 1
        else:
            self.fall_outs += 1
        if self.draft is None:
            return
        if self.to_draft and self.to_draft[-1][0] == "commit" and rng.random() < 0.5:
            _, position, earlier = self.to_draft.pop()
            tokens = [*earlier, *tokens]
        self.to_draft.append(("commit", position, tuple(tokens)))

    def target_adds_nodes(self, rng: random.Random) -> None:
        """The target adds a chain of its own."""
        count = len(self.mirror)
        parents = [rng.randint(ROOT, count - 1), count, count + 1]
        tokens = [rng.randrange(VOCABULARY) for _ in parents]
        self.mirror.add_local(
            np.array(parents, np.int32), np.array(tokens, np.int32), np.full(3, -1, np.float32)
        )

    def limits_change(self, rng: random.Random) -> None:
        """Depth, width or nodes ahead change, perhaps to none."""
        self.limits = (rng.randint(1, 6), rng.randint(1, 4), rng.choice([0, 1, 6, CAPACITY]))
        self.granted = max(self.granted, self.limits[2])
        self.to_draft.append(("limits", 0, self.limits))

    def link_dies(self) -> None:
        """The stream ends, with all that was on it."""
        self.draft = None
        self.to_draft.clear()
        self.to_target.clear()
        self.mirror.detach()

    def link_reopens(self) -> None:
        """A new session opens with all tokens committed so far."""
        self.draft = Draft(self.tokens, self.limits)
        self.granted = self.limits[2]
        self.used_ids.clear()
        self.mirror.attach()

    def settle(self) -> None:
        """All messages arrive and nothing new is made: both copies are equal."""
        if self.draft is None:
            return
        while self.to_draft:
            self.draft_hears()
        while self.to_target:
            self.target_hears()
        assert self.draft.tokens == self.tokens
        with_id = {i: n.shared for i, n in self.mirror_nodes().items()}
        assert with_id == {i: n.shared for i, n in self.draft.nodes().items()}

    def mirror_nodes(self) -> dict[int, Node]:
        """The mirror's nodes that have an id, by id; checks that columns agree with one another."""
        mirror = self.mirror
        context: list[Context] = []
        nodes = {}
        for i in range(len(mirror)):
            above = int(mirror.parent[i])
            assert ROOT <= above < i
            path = tuple(self.tokens) if above == ROOT else context[above]
            context.append((*path, int(mirror.token[i])))
            assert mirror.depth[i] == len(context[i]) - len(self.tokens)
            first_id = int(mirror.first_id[i])
            if first_id:
                parent_id = 0 if above == ROOT else int(mirror.first_id[above])
                assert above == ROOT or 0 < parent_id < first_id
                logprob = float(mirror.logprob[i])
                nodes[first_id] = Node(parent_id, int(mirror.depth[i]), logprob, context[i])
        assert len(set(context)) == len(context), "two siblings have the same token"
        return nodes

    def check(self) -> None:
        """Check what is true after each rule."""
        with_id = self.mirror_nodes()
        assert len(with_id) <= self.granted
        assert self.mirror.drafted == len(with_id)
        assert len(self.mirror) - len(with_id) <= LOCAL_CAPACITY
        assert self.mirror.root_position == len(self.tokens) - 1
        if self.draft is None:
            assert not with_id
            return
        draft, tree = self.draft, self.draft.tree
        assert draft.tokens == self.tokens[: len(draft.tokens)]
        assert tree.root_position == len(draft.tokens) - 1
        assert draft.rows_run + draft.pending == draft.rows_due
        for position in range(tree.cached):
            assert draft.kv[position] == tuple(draft.tokens[: position + 1])
        nodes = draft.nodes()
        assert list(nodes) == sorted(nodes)
        assert len(nodes) <= CAPACITY
        slots = sorted(node.slot for node in nodes.values() if node.slot >= 0)
        assert slots == list(range(tree.cached, tree.cached + len(slots)))
        assert all(draft.kv[n.slot] == n[3] for n in nodes.values() if n.slot >= 0)


seeds = st.integers(0, 2**16).map(random.Random)


class TreeProtocol(RuleBasedStateMachine):
    """`World`, with hypothesis choosing the schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @precondition(lambda self: self.world.draft is not None)
    @rule(rng=seeds)
    def draft_pass(self, rng: random.Random) -> None:
        self.world.draft_pass(rng)

    @precondition(lambda self: self.world.to_draft)
    @rule()
    def draft_hears(self) -> None:
        self.world.draft_hears()

    @precondition(lambda self: self.world.to_target)
    @rule()
    def target_hears(self) -> None:
        self.world.target_hears()

    @rule(rng=seeds)
    def target_commits(self, rng: random.Random) -> None:
        self.world.target_commits(rng)

    @rule(rng=seeds)
    def target_adds_nodes(self, rng: random.Random) -> None:
        self.world.target_adds_nodes(rng)

    @precondition(lambda self: self.world.draft is not None)
    @rule(rng=seeds)
    def limits_change(self, rng: random.Random) -> None:
        self.world.limits_change(rng)

    @precondition(lambda self: self.world.draft is not None)
    @rule()
    def link_dies(self) -> None:
        self.world.link_dies()

    @precondition(lambda self: self.world.draft is None)
    @rule()
    def link_reopens(self) -> None:
        self.world.link_reopens()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.settle()
        self.world.check()


TestTreeProtocol = TreeProtocol.TestCase
TestTreeProtocol.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def run_schedule(seed: int, steps: int) -> World:
    """A long random schedule in which the link mostly lives."""
    rng = random.Random(seed)
    world = World()
    lag = rng.choice([0.2, 0.5, 0.9])  # how rarely messages arrive
    for _ in range(steps):
        if world.draft is None:
            world.link_reopens()
        moves = [world.draft_pass] * 6 + [world.target_commits] * 3
        moves += [world.target_adds_nodes, world.limits_change] if rng.random() < 0.1 else []
        rng.choice(moves)(rng)
        while world.to_draft and rng.random() > lag:
            world.draft_hears()
        while world.to_target and rng.random() > lag:
            world.target_hears()
        if rng.random() < 0.01:
            world.link_dies()
    world.check()
    world.settle()
    world.check()
    return world


def test_copies_are_equal_after_every_one_of_many_random_schedules() -> None:
    worlds = [run_schedule(seed, steps=80) for seed in range(300)]
    assert sum(w.fall_ins for w in worlds) > 250
    assert sum(w.fall_outs for w in worlds) > 250
    assert sum(w.rebased for w in worlds) > 100, "no growth was in flight during a commit"
