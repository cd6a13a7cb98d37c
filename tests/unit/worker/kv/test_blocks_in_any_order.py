"""Sequences that come, grow, commit, are preempted and go in any order, against a plain model.

The pool grows and shrinks by slabs at any point between.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.worker.kv.block_pool import BLOCK, BlockPool, BlockTable, KVUsage, blocks_for

BLOCKS = 9
MOST = 15
"""Blocks with all slabs."""
LONGEST = 5 * BLOCK
GARBAGE = (-1,)
Prefix = tuple[int, ...]


@dataclass
class Live:
    """A sequence: what it has committed, what of that has KV, and what it has published."""

    block_table: BlockTable
    tokens: list[int]
    computed: int
    published: list[Prefix] = field(default_factory=list)

    @property
    def unpublished(self) -> int:
        """Blocks that are its own."""
        return len(self.block_table.table) - len(self.published)


class Blocks(RuleBasedStateMachine):
    """The pool, what was written to each slot, and what the pool ought to remember."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, LONGEST)
        self.blocks = BLOCKS
        self.slots: dict[int, Prefix] = {}
        """By slot: the tokens up to and including the one whose KV was written there."""
        self.live: list[Live] = []
        self.idle: list[Prefix] = []
        """Published and unused, the one to evict next first."""
        self.queries = self.hits = self.evictions = 0

    @property
    def shared(self) -> set[Prefix]:
        """Published blocks that are in use, by all the tokens up to their end."""
        return {prefix for one in self.live for prefix in one.published}

    @property
    def free(self) -> int:
        return self.blocks - len(self.idle) - len(self.shared) - self.unpublished

    @property
    def unpublished(self) -> int:
        return sum(one.unpublished for one in self.live)

    def take(self, count: int, free: int) -> None:
        """What has to be evicted so that so many can be had."""
        evicted = max(0, count - free)
        del self.idle[:evicted]
        self.evictions += evicted

    def come(self, tokens: list[int], room: int) -> None:
        found = []
        for end in range(BLOCK, len(tokens), BLOCK):
            if tuple(tokens[:end]) not in self.shared | set(self.idle):
                break
            found.append(tuple(tokens[:end]))
        lacking = blocks_for(room) - len(found)
        free = self.free
        available = free + len(set(self.idle) - set(found))
        block_table = self.pool.admit(np.array(tokens, np.int32), room)
        assert (block_table is None) == (lacking > available)
        if block_table is None:
            return
        assert block_table.cached == len(found) * BLOCK
        self.idle = [prefix for prefix in self.idle if prefix not in found]
        self.take(lacking, free)
        self.queries += len(tokens)
        self.hits += block_table.cached
        self.live.append(Live(block_table, tokens, block_table.cached, found))

    @rule(
        blocks=st.lists(st.sampled_from([1, 2]), max_size=3),
        more=st.sampled_from([1, 2, 63]),
        spare=st.integers(0, 80),
    )
    def admit(self, blocks: list[int], more: int, spare: int) -> None:
        tokens = [*np.repeat(blocks, BLOCK).tolist(), *[1] * more]
        self.come(tokens, min(len(tokens) + spare, LONGEST))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), room=st.integers(1, LONGEST))
    def extend(self, which: int, room: int) -> None:
        one = self.pick(which)
        lacking = blocks_for(room) - len(one.block_table.table)
        free, available = self.free, self.free + len(self.idle)
        assert self.pool.extend(one.block_table, room) == (lacking <= available)
        if lacking <= available:
            self.take(lacking, free)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), token=st.sampled_from([1, 2]), count=st.integers(1, 70))
    def commit(self, which: int, token: int, count: int) -> None:
        one = self.pick(which)
        one.tokens = [*one.tokens, *[token] * count][: one.block_table.room]

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), count=st.integers(1, 130))
    def compute(self, which: int, count: int) -> None:
        one = self.pick(which)
        end = min(one.computed + count, len(one.tokens), one.block_table.room)
        self.write(one, {at: tuple(one.tokens[: at + 1]) for at in range(one.computed, end)})
        one.computed = end

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99))
    def run_all(self, which: int) -> None:
        self.compute(which, LONGEST)
        self.publish(which)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), nodes=st.integers(1, 70))
    def verify_nodes(self, which: int, nodes: int) -> None:
        one = self.pick(which)
        end = min(one.computed + nodes, one.block_table.room)
        self.write(one, dict.fromkeys(range(one.computed, end), GARBAGE))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99))
    def publish(self, which: int) -> None:
        one = self.pick(which)
        self.pool.publish(one.block_table, np.array(one.tokens, np.int32), one.computed)
        for end in range((len(one.published) + 1) * BLOCK, one.computed + 1, BLOCK):
            prefix = tuple(one.tokens[:end])
            one.published.append(prefix)
            if prefix in self.idle:
                self.idle.remove(prefix)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99))
    def free_one(self, which: int) -> None:
        self.go(self.pick(which))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 99), spare=st.integers(0, 64))
    def preempt(self, which: int, spare: int) -> None:
        one = self.pick(which)
        self.go(one)
        self.come(one.tokens, min(len(one.tokens) + spare, LONGEST))

    @rule(count=st.integers(1, 6))
    def expand(self, count: int) -> None:
        count = min(count, MOST - self.blocks)
        tables = [one.block_table.table.tolist() for one in self.live]
        self.pool.expand(count)
        self.blocks += count
        assert [one.block_table.table.tolist() for one in self.live] == tables

    @rule(count=st.integers(0, MOST))
    def contract(self, count: int) -> None:
        stay, used = self.blocks - count, len(self.shared) + self.unpublished
        before = [(one.block_table.table, one.block_table.table.tolist()) for one in self.live]
        moves = self.pool.contract(count)
        assert (moves is None) == (stay < used)
        if moves is None:
            assert [one.block_table.table.tolist() for one in self.live] == [t for _, t in before]
            return
        evicted = max(0, used + len(self.idle) - stay)
        del self.idle[:evicted]
        self.evictions += evicted
        assert (moves.sources >= stay).all()
        assert (moves.sources < self.blocks).all(), "only live blocks of the slabs that go"
        assert (moves.destinations < stay).all()
        assert len(moves.sources) <= used + len(self.idle)
        self.blocks = stay
        self.move(moves.sources.tolist(), moves.destinations.tolist())
        names = dict(zip(moves.sources.tolist(), moves.destinations.tolist(), strict=True))
        for one, (array, table) in zip(self.live, before, strict=True):
            assert one.block_table.table.tolist() == [names.get(block, block) for block in table]
            assert array.tolist() == table, "rows made before keep their table"

    def move(self, sources: list[int], destinations: list[int]) -> None:
        """What the owner of the arrays does: blocks are copied, then slabs go."""
        for source, destination in zip(sources, destinations, strict=True):
            for at in range(BLOCK):
                self.slots.pop(destination * BLOCK + at, None)
                if source * BLOCK + at in self.slots:
                    self.slots[destination * BLOCK + at] = self.slots[source * BLOCK + at]
        self.slots = {slot: x for slot, x in self.slots.items() if slot < self.blocks * BLOCK}

    def pick(self, which: int) -> Live:
        return self.live[which % len(self.live)]

    def go(self, one: Live) -> None:
        self.live.remove(one)
        self.pool.free(one.block_table)
        self.idle += [p for p in reversed(one.published) if p not in self.shared]
        with pytest.raises(ValueError, match="this block table was freed"):
            self.pool.free(one.block_table)

    def write(self, one: Live, contents: dict[int, Prefix]) -> None:
        slots = one.block_table.writable(np.array(list(contents), np.int32)).tolist()
        self.slots.update(zip(slots, contents.values(), strict=True))

    @invariant()
    def what_a_sequence_computed_is_still_there(self) -> None:
        for one in self.live:
            ends = np.arange(one.computed, dtype=np.int32)
            for at, slot in enumerate(one.block_table.slots(ends).tolist()):
                if at % 16 in (0, 15):  # the ends of runs: all would take minutes
                    assert self.slots[slot] == tuple(one.tokens[: at + 1])

    @invariant()
    def a_block_has_one_owner_unless_it_is_published(self) -> None:
        own = [b for x in self.live for b in x.block_table.table[len(x.published) :].tolist()]
        shared = {b for x in self.live for b in x.block_table.table[: len(x.published)].tolist()}
        assert len(set(own)) == len(own)
        assert not shared & set(own)
        assert len(shared) == len(self.shared)

    @invariant()
    def every_block_is_counted_once(self) -> None:
        assert self.pool.usage == KVUsage(
            blocks=self.blocks,
            free=self.free,
            used=self.blocks - self.free - len(self.idle),
            cached=len(self.idle),
            queries=self.queries,
            hits=self.hits,
            evictions=self.evictions,
        )

    def teardown(self) -> None:
        for one in list(self.live):
            self.go(one)
        assert self.pool.used == 0
        assert self.pool.available == self.blocks


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
