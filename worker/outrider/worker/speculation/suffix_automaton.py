"""Suffix automaton of one sequence's tokens: where its end has occurred before, and what came next.

After Blumer et al. (1985), as SuffixDecoding (arXiv 2411.04975) uses suffix trees. Online: each
token that is appended takes amortised constant time. Arrays are laid out once; a longer text begins
anew with the later half of what fits. Leaves what is proposed from it to `suffix_source`.

A *state* stands for all suffixes that have occurred at the same places; its `link` is the state of
the next shorter suffix that has occurred at more. State 0 is the empty suffix.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Ids, Ints

MAX_TOKENS = 16384
"""Most tokens of a sequence that its automaton holds, at 120 bytes each."""
MOST_READ = 256
"""Tokens that a sequence reads in one step while it decodes."""
NONE = -1
START = 0
"""State of the empty suffix."""
COUNTED_LINKS = 64
"""Suffixes whose occurrences a token counts, longest first: a text of one token has them all."""
STATES, EDGES, LAST, READ, SHIFT = range(5)
"""Places in `SuffixTables.numbers`: states and edges in use, the state of the whole text, the
positions of the sequence that were read, and how far a hash is shifted."""
FACTOR, OTHER_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class SuffixTables(NamedTuple):
    """All arrays of one automaton; none has an entry where it is not in use."""

    length: Ints
    """[states] tokens of the longest suffix."""
    link: Ints
    occurrences: Ints
    """[states] of each suffix."""
    first: Ints
    """[states] tokens up to the end of the first occurrence of each suffix."""
    newest: Ints
    """[states] the newest edge that leaves it, or `NONE`."""
    source: Ints
    """[edges] the state that it leaves."""
    token: Ints
    target: Ints
    """[edges] the state after it."""
    older: Ints
    """[edges] the next older edge of the same state, or `NONE`."""
    slots: Ints
    """[a power of two] number of an edge, plus 1, by the hash of its source and token; 0: free."""
    numbers: Ids

    @classmethod
    def empty(cls, tokens: int, most: int = MAX_TOKENS) -> "SuffixTables":
        """Return an automaton with room for so many tokens, at most for `most`; 0: none at all.

        It reads nothing where it has no room.
        """
        held = min(tokens, most)
        states, edges = (2 * held + 1, 3 * held + 1) if held else (0, 0)
        bits = (2 * edges).bit_length() if held else 0
        numbers = np.zeros(5, np.int64)
        numbers[SHIFT] = 64 - bits
        by_state = [np.empty(states, np.int32) for _ in range(5)]
        by_edge = [np.empty(edges, np.int32) for _ in range(4)]
        slots = np.zeros(1 << bits if held else 0, np.int32)
        tables = cls._make([*by_state, *by_edge, slots, numbers])
        if held:
            _begin(tables)
        return tables


@njit()
def clear(tables: SuffixTables) -> None:
    """Forget the text."""
    tables.slots[:] = 0
    _begin(tables)


@njit()
def _begin(tables: SuffixTables) -> None:
    """Begin with no text, where no slot is in use."""
    numbers = tables.numbers
    tables.length[START], tables.link[START], tables.occurrences[START] = 0, NONE, 0
    tables.first[START], tables.newest[START] = 0, NONE
    numbers[STATES], numbers[EDGES], numbers[LAST] = 1, 0, START


@njit()
def read(tables: SuffixTables, tokens: Ints, length: int, most: int) -> bool:
    """Append tokens of a sequence, up to position `length`, that were not read yet; True once all
    are, and nothing may be proposed before that.

    At most `most` of them: a token takes 0.25 µs (Zen 5), and a prompt whose KV was cached comes
    all at once. Of what does not fit, it begins anew with the later half of what does.
    """
    numbers, held = tables.numbers, tables.length.shape[0] // 2
    if held == 0:
        return False
    if length - numbers[READ] > held:
        _begin_at(tables, length - held // 2)
    for position in range(numbers[READ], min(length, numbers[READ] + most)):
        if tables.length[numbers[LAST]] == held:
            _begin_at(tables, position - held // 2)
            return False
        append(tables, tokens[position])
        numbers[READ] = position + 1
    return bool(numbers[READ] >= length)


@njit()
def _begin_at(tables: SuffixTables, position: int) -> None:
    """Forget the text, and read on from a position."""
    clear(tables)
    tables.numbers[READ] = position


@njit()
def append(tables: SuffixTables, token: int) -> None:
    """Append one token to the text; there must be room for it."""
    length, link, numbers = tables.length, tables.link, tables.numbers
    state = numbers[LAST]
    added = _add_state(tables, length[state] + 1)
    tables.first[added] = length[added]
    edge = edge_of(tables, state, token)
    while edge == NONE:
        _add_edge(tables, state, token, added)
        state = link[state]
        if state == NONE:
            break
        edge = edge_of(tables, state, token)
    if state == NONE:
        link[added] = START
    else:
        link[added] = _suffix_state(tables, state, token, edge)
    numbers[LAST] = added
    _count(tables, added)


@njit()
def edge_of(tables: SuffixTables, state: int, token: int) -> int:
    """Return the edge that leaves a state with a token, or `NONE`."""
    slot = _hash(tables, state, token)
    while tables.slots[slot] != 0:
        edge = tables.slots[slot] - 1
        if tables.source[edge] == state and tables.token[edge] == token:
            return int(edge)
        slot = (slot + 1) & (tables.slots.shape[0] - 1)
    return NONE


@njit()
def longest_match(tables: SuffixTables) -> int:
    """Return the state of the longest suffix of the text that has occurred before; `START`: none.

    Edges lead from it to what followed it.
    """
    if tables.length.shape[0] == 0 or tables.numbers[LAST] == START:
        return START
    return int(tables.link[tables.numbers[LAST]])


@njit()
def _suffix_state(tables: SuffixTables, state: int, token: int, edge: int) -> int:
    """Return the state of exactly the suffixes that `edge`, of `state` and `token`, continues.

    Where the state that it leads to has longer suffixes too, that is split in two.
    """
    length, link = tables.length, tables.link
    whole = int(tables.target[edge])
    if length[whole] == length[state] + 1:
        return whole
    part = _add_state(tables, length[state] + 1)
    tables.occurrences[part], tables.first[part] = tables.occurrences[whole], tables.first[whole]
    link[part] = link[whole]
    _copy_edges(tables, whole, part)
    while edge != NONE and tables.target[edge] == whole:
        tables.target[edge] = part
        state = link[state]
        edge = NONE if state == NONE else edge_of(tables, state, token)
    link[whole] = part
    return int(part)


@njit()
def _count(tables: SuffixTables, state: int) -> None:
    """Count one more occurrence of the suffixes of a text that ends in `state`."""
    for _ in range(COUNTED_LINKS):
        if state == START:
            return
        tables.occurrences[state] += 1
        state = tables.link[state]


@njit()
def _add_state(tables: SuffixTables, length: int) -> int:
    state = int(tables.numbers[STATES])
    tables.numbers[STATES] = state + 1
    tables.length[state], tables.link[state], tables.occurrences[state] = length, START, 0
    tables.newest[state] = NONE
    return state


@njit()
def _add_edge(tables: SuffixTables, state: int, token: int, target: int) -> None:
    """Add an edge that there is not, as the newest of its state."""
    edge = _put_edge(tables, state, token, target)
    tables.older[edge], tables.newest[state] = tables.newest[state], edge


@njit()
def _copy_edges(tables: SuffixTables, source: int, to: int) -> None:
    """Give a new state the edges of another, in the same order."""
    edge, before = tables.newest[source], NONE
    while edge != NONE:
        copied = _put_edge(tables, to, tables.token[edge], tables.target[edge])
        tables.older[copied] = NONE
        if before == NONE:
            tables.newest[to] = copied
        else:
            tables.older[before] = copied
        before = copied
        edge = tables.older[edge]


@njit()
def _put_edge(tables: SuffixTables, state: int, token: int, target: int) -> int:
    """Return a new edge that its hash finds, and that is not among those of its state yet."""
    edge = int(tables.numbers[EDGES])
    tables.numbers[EDGES] = edge + 1
    tables.source[edge], tables.token[edge], tables.target[edge] = state, token, target
    slot = _hash(tables, state, token)
    while tables.slots[slot] != 0:
        slot = (slot + 1) & (tables.slots.shape[0] - 1)
    tables.slots[slot] = edge + 1
    return edge


@njit()
def _hash(tables: SuffixTables, state: int, token: int) -> int:
    mixed = np.uint64(state) * FACTOR ^ np.uint64(token) * OTHER_FACTOR
    mixed *= FACTOR
    return np.int64(mixed >> np.uint64(tables.numbers[SHIFT]))  # type: ignore[return-value]
