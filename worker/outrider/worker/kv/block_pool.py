"""Block pool and block tables: owners of KV blocks, prefix cache, eviction, slabs.

Counts and maps only: the arrays are in `kv_cache`. The pool grows and shrinks by slabs at its end;
blocks of one that goes are renamed, in every table. Sharing is of full blocks of committed tokens,
as in vLLM's automatic prefix caching: a block is found by a digest of its tokens and all before.
It is found by those alone that would compute the same bits: a block remembers how many of its
tokens the vendor's library computed.
"""

import dataclasses
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Digest = Callable[[bytes, bytes], bytes]

BLOCK = 64
"""Slots of one block: the attention kernel's tile."""
NO_PARENT = -1
NO_TOKENS = b""
"""The digest that every chain starts with."""


def blocks_for(slots: int) -> int:
    """Return the number of blocks that hold so many slots."""
    return -(-slots // BLOCK)


@dataclass(slots=True, eq=False)
class BlockTable:
    """Block table of one sequence: the blocks of its offsets 0 … room - 1.

    Committed position p lies at offset p, nodes behind. Made by `BlockPool.admit`; only the pool
    changes it.
    """

    table: Int32
    """[blocks] number of a block in the pool, by offset // 64; replaced, never written to."""
    cached: int
    """Tokens that had KV from the start: a multiple of 64."""
    published: int
    """Blocks at the front that may be shared: nothing may be written there any more."""
    digest: bytes
    """Digest of the last published block, and of all tokens before it."""
    findable: bool
    """True if further blocks are published to the prefix cache."""
    library_tokens: int = 0
    """Tokens at the front that the vendor's library computes."""
    freed: bool = False

    @property
    def room(self) -> int:
        """Offsets that it has blocks for."""
        return len(self.table) * BLOCK

    def slots(self, offsets: Int32) -> Int32:
        """Return the pool's slots of offsets below `room`; same shape."""
        found: Int32 = self.table[offsets // BLOCK] * np.int32(BLOCK) + offsets % BLOCK
        return found

    def writable(self, offsets: Int32) -> Int32:
        """Return `slots` of offsets that are to be written.

        Raises `ValueError` if one is in a published block, which another sequence may read, or
        beyond `room`.
        """
        if len(offsets):
            self.check_writable(int(offsets.min()), int(offsets.max()))
        return self.slots(offsets)

    def check_writable(self, first: int, last: int) -> None:
        """Raise `ValueError` where one of the offsets `first` to `last` may not be written."""
        if first < self.published * BLOCK or last >= self.room:
            raise ValueError(
                f"offsets {first} to {last} may not be written: those from "
                f"{self.published * BLOCK} to {self.room - 1} may"
            )


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a published block; digests may collide, contents do not."""

    parent: int
    """The block before it, which is never evicted before it."""
    tokens: bytes
    """Tokens of the block, int32[64]."""
    library_tokens: int = 0
    """Tokens at its front that the vendor's library computed, whose sums differ in their bits."""

    @classmethod
    def of(cls, parent: int, tokens: Int32, start: int, library_tokens: int) -> "Content":
        """Return the content of a block whose first token is number `start` of a sequence, of which
        the library computes the first `library_tokens`."""
        return cls(
            parent,
            tokens[start : start + BLOCK].tobytes(),
            min(max(library_tokens - start, 0), BLOCK),
        )

    @property
    def key(self) -> bytes:
        """All of it but the parent, for a digest."""
        return self.tokens + bytes([self.library_tokens])


@dataclass(frozen=True, slots=True)
class BlockMoves:
    """Blocks whose contents have to move, all of them before anything else is read or written."""

    sources: Int32
    """[moves] in the slab that goes."""
    destinations: Int32
    """[moves] of blocks that stay, and held nothing."""


@dataclass(frozen=True, slots=True)
class KVUsage:
    """Usage of a pool's blocks, and hits of the prefix cache."""

    blocks: int
    free: int
    """Blocks that hold nothing."""
    used: int
    """Blocks that sequences refer to; a shared one counts once."""
    cached: int
    """Blocks without an owner, kept in the prefix cache."""
    queries: int
    """Tokens of all prompts admitted while prefixes were cached."""
    hits: int
    """Tokens of admitted prompts whose KV was in the prefix cache."""
    evictions: int
    """Cached blocks that were given up."""


def chained(before: bytes, tokens: bytes) -> bytes:
    """Return 16 bytes that stand for a block's tokens and all before them."""
    return hashlib.blake2b(before + tokens, digest_size=16).digest()


class BlockPool:
    """Block pool: `blocks` blocks of 64 slots for sequences of up to `longest` slots.

    `prefix_cache` off publishes nothing.
    """

    def __init__(
        self,
        blocks: int,
        longest: int,
        *,
        prefix_cache: bool = True,
        digest: Digest = chained,
    ) -> None:
        self.longest = blocks_for(longest) * BLOCK
        """Most slots of one sequence, rounded up to whole blocks."""
        self.prefix_cache = prefix_cache
        self._digest = digest
        self._references = [0] * blocks
        self._free = list(range(blocks - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        """The prefix cache's blocks without an owner, the one to evict next first."""
        self._found: dict[bytes, int] = {}
        self._contents: dict[int, tuple[bytes, Content]] = {}
        """By published block: its digest and what it holds."""
        self._tables: set[BlockTable] = set()
        """Of all sequences."""
        self._queries = self._hits = self._evictions = 0

    @property
    def blocks(self) -> int:
        return len(self._references)

    @property
    def used(self) -> int:
        """Blocks that sequences refer to."""
        return len(self._references) - self.available

    @property
    def available(self) -> int:
        """Blocks that could be had: the free and the evictable."""
        return len(self._free) + len(self._idle)

    @property
    def usage(self) -> KVUsage:
        return KVUsage(
            blocks=len(self._references),
            free=len(self._free),
            used=self.used,
            cached=len(self._idle),
            queries=self._queries,
            hits=self._hits,
            evictions=self._evictions,
        )

    def lacking(self, tokens: Int32, room: int, library_tokens: int = 0) -> int:
        """Return how many available blocks `admit` would take, idle shared ones among them."""
        shared = list(self._prefix(tokens, library_tokens))
        return blocks_for(room) - sum(block not in self._idle for block in shared)

    def admit(self, tokens: Int32, room: int, library_tokens: int = 0) -> BlockTable | None:
        """Return a block table of at least `room` offsets; None, and nothing changed, if it cannot.

        The first `cached` of `tokens` have KV already: whole blocks, and never the last token, for
        that one's row has to run. The vendor's library computes the first `library_tokens` of
        them, the kernels all others. Raises `ValueError` for more room than `longest`.
        """
        self._check(room)
        shared = list(self._prefix(tokens, library_tokens))
        lacking = blocks_for(room) - len(shared)
        idle = sum(block in self._idle for block in shared)
        if lacking > self.available - idle:
            return None
        digest = self._contents[shared[-1]][0] if shared else NO_TOKENS
        for block in shared:
            self._refer(block)
        if self.prefix_cache:
            self._queries += len(tokens)
            self._hits += len(shared) * BLOCK
        block_table = BlockTable(
            table=np.array(shared + self._take(lacking), np.int32),
            cached=len(shared) * BLOCK,
            published=len(shared),
            digest=digest,
            findable=self.prefix_cache,
            library_tokens=library_tokens,
        )
        self._tables.add(block_table)
        return block_table

    def extend(self, block_table: BlockTable, room: int) -> bool:
        """Grow `block_table` to at least `room` offsets; False, and nothing changed, if it cannot.

        Raises `ValueError` for more room than `longest`, or a block table that was freed.
        """
        self._check(room, block_table)
        lacking = blocks_for(room) - len(block_table.table)
        if lacking > self.available:
            return False
        if lacking > 0:
            more = np.array(self._take(lacking), np.int32)
            block_table.table = np.concatenate([block_table.table, more])
        return True

    def publish(self, block_table: BlockTable, tokens: Int32, computed: int) -> None:
        """Let others find the full blocks among the first `computed` of `tokens`.

        Those tokens must be committed and have KV. A block that is known already gives way to the
        known one, so that a table's published blocks are those that a search would find. Raises
        `ValueError` where that many tokens are not there, or the table was freed.
        """
        if not block_table.findable or computed < (block_table.published + 1) * BLOCK:
            return
        self._check(0, block_table)
        if computed > min(len(tokens), block_table.room):
            raise ValueError(
                f"{computed} tokens computed, of {len(tokens)}, in {block_table.room} offsets"
            )
        while block_table.findable and block_table.published < computed // BLOCK:
            self._publish_next(block_table, tokens)

    def free(self, block_table: BlockTable) -> None:
        """Give up all blocks of a block table; raises `ValueError` for one that was freed.

        Published blocks stay to be found until their space is needed, the last ones for the
        shortest: what is before a block is worth more than the block.
        """
        self._check(0, block_table)
        for block in reversed(block_table.table.tolist()):
            self._drop(block)
        block_table.freed, block_table.findable = True, False
        block_table.table = block_table.table[:0]
        self._tables.discard(block_table)

    def expand(self, count: int) -> None:
        """Add a slab of `count` blocks behind the last one; they are used last, nothing moves."""
        first = self.blocks
        self._references += [0] * count
        self._free[:0] = range(first + count - 1, first - 1, -1)

    def contract(self, count: int) -> BlockMoves | None:
        """Take away the last `count` blocks; None, and nothing changed, where sequences need them.

        What lies in them gets other blocks, in every table and in the prefix cache, which gives up
        as little as it must. The caller moves the contents before the next pass.
        """
        stay = self.blocks - count
        if stay < self.used:
            return None
        while self.used + len(self._idle) > stay:
            self._free.append(self._evict())
        going = [b for b in range(stay, self.blocks) if self._references[b] or b in self._idle]
        free = [block for block in self._free if block < stay]
        taken = sorted(free)[: len(going)]
        self._rename(dict(zip(going, taken, strict=True)))
        self._free = [block for block in free if block not in set(taken)]
        del self._references[stay:]
        return BlockMoves(np.array(going, np.int32), np.array(taken, np.int32))

    def _check(self, room: int, block_table: BlockTable | None = None) -> None:
        if room > self.longest:
            raise ValueError(f"room for {room} offsets: a sequence may have {self.longest}")
        if block_table is not None and block_table.freed:
            raise ValueError("this block table was freed")

    def _prefix(self, tokens: Int32, library_tokens: int) -> Iterator[int]:
        """Yield published blocks that hold the beginning of `tokens`, without the last one."""
        digest, parent = NO_TOKENS, NO_PARENT
        for start in range(0, (len(tokens) - 1) // BLOCK * BLOCK, BLOCK):
            content = Content.of(parent, tokens, start, library_tokens)
            digest = self._digest(digest, content.key)
            block = self._found.get(digest)
            if block is None or self._contents[block][1] != content:
                return
            yield block
            parent = block

    def _rename(self, names: dict[int, int]) -> None:
        """Give blocks other numbers, which are free, wherever they are known."""
        lookup = np.arange(self.blocks, dtype=np.int32)
        for old, new in names.items():
            self._references[new], self._references[old] = self._references[old], 0
            lookup[old] = new
        for block_table in self._tables:
            block_table.table = lookup[block_table.table]
        self._idle = OrderedDict((names.get(block, block), None) for block in self._idle)
        self._found = {digest: names.get(block, block) for digest, block in self._found.items()}
        self._contents = {
            names.get(block, block): (
                digest,
                dataclasses.replace(content, parent=names.get(content.parent, content.parent)),
            )
            for block, (digest, content) in self._contents.items()
        }

    def _publish_next(self, block_table: BlockTable, tokens: Int32) -> None:
        """Publish the next block of `tokens`; a digest that stands for another ends publishing."""
        at = block_table.published
        own = int(block_table.table[at])
        parent = int(block_table.table[at - 1]) if at else NO_PARENT
        content = Content.of(parent, tokens, at * BLOCK, block_table.library_tokens)
        digest = self._digest(block_table.digest, content.key)
        known = self._found.setdefault(digest, own)
        if known == own:
            self._contents[own] = digest, content
        elif self._contents[known][1] == content:
            self._refer(known)
            self._drop(own)
            block_table.table = block_table.table.copy()
            block_table.table[at] = known
        else:
            block_table.findable = False
            return
        block_table.published, block_table.digest = at + 1, digest

    def _take(self, count: int) -> list[int]:
        """Take blocks for one owner each; evict where none is free."""
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        digest, _ = self._contents.pop(block)
        del self._found[digest]
        self._evictions += 1
        return block

    def _refer(self, block: int) -> None:
        self._references[block] += 1
        self._idle.pop(block, None)

    def _drop(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block]:
            return
        if block in self._contents:
            self._idle[block] = None
        else:
            self._free.append(block)
