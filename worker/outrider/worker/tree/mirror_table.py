"""The mirror's tables, of nodes and of node ids, and their updates: growth, local nodes, commits.

Every update is one compiled call, counts and positions included. Leaves what may be asked of a
mirror to `mirror.Mirror`, which owns the tables. An id is unknown where it is dead, so dead ids
take no room (speculation.md, Mirror).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.walk import DEAD, ROOT, child_of, descend, survivors

DRAFT, SUFFIX, ANSWERS, PREDICTION = range(4)
"""Proposers, in the order of `contract.sources.SOURCES`: `DRAFT` of every node that has an id, the
others of *local* nodes, which the target added by itself."""
NOBODY = -1
"""In place of a second proposer."""
UNKNOWN = np.iinfo(np.int64).min
"""State of an id that is dead, or was never received."""
MAX_LOGPROB = 1e-3
"""Rounding may leave a log-probability above 0 by this; the mirror takes it as 0."""

COUNT, DRAFTED, ID_COUNT, ROOT_POSITION, ACKNOWLEDGED = range(5)
LAST_ID, ATTACHED, CAPACITY, LOCAL_CAPACITY = range(5, 9)
"""Places in `MirrorTables.numbers`; see `mirror.Mirror`."""
FINE, BAD_PARENT, BAD_TOKEN, MASKED_TOKEN, BAD_LOGPROB = range(5)
"""What `fault_of` finds."""


class MirrorNodes(NamedTuple):
    """Columns of the nodes."""

    parent: Ints
    token: Ints
    depth: Ints
    logprob: Floats
    proposer: Ints
    other_logprob: Floats
    other: Ints
    """The local proposer of a node that the draft proposes too, or `NOBODY`, and its estimate."""
    first_id: Ids

    @classmethod
    def empty(cls, size: int) -> "MirrorNodes":
        """Return a table with room for `size` nodes."""
        parent, token, depth, proposer, other = (np.empty(size, np.int32) for _ in range(5))
        logprob, other_logprob = (np.empty(size, np.float32) for _ in range(2))
        first_id = np.empty(size, np.int64)
        return cls(parent, token, depth, logprob, proposer, other_logprob, other, first_id)


class NodeIds(NamedTuple):
    """Ids of the draft that are not dead, ascending, each with its state.

    A state is the index of a live node, or `committed_at(q)` for an id committed at position q.
    """

    id: Ids
    state: Ids

    @classmethod
    def empty(cls, size: int) -> "NodeIds":
        """Return a table with room for `size` ids."""
        return cls(np.empty(size, np.int64), np.empty(size, np.int64))


class MirrorTables(NamedTuple):
    """All arrays of one mirror."""

    nodes: MirrorNodes
    ids: NodeIds
    tokens: Ints
    """[positions] the sequence's committed tokens, up to the root; then room."""
    numbers: Ids
    """Counts of live nodes, those with an id among them, and ids, positions, …, int64[9]: `COUNT`
    and so on."""


MirrorHandle = Handle[MirrorTables]


@njit()
def receive(mirror: MirrorHandle, growth: Growth, allowed: NDArray[np.bool_]) -> tuple[int, int]:
    """Add the nodes of a growth, and acknowledge commits up to its root.

    Returns `FINE` and the number of nodes that were dead on arrival; or the first fault, by
    `allowed` bool[vocabulary], and the node that has it, and then nothing has changed.
    """
    fault, node = fault_of(growth, allowed)
    if fault != FINE:
        return fault, node
    return FINE, grow(mirror.value, growth)


@njit()
def fault_of(growth: Growth, allowed: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first fault of a growth, and the node that has it."""
    for node in range(growth.parents.shape[0]):
        if not 0 <= growth.parents[node] < growth.first_id + node:
            return BAD_PARENT, node
        if not 0 <= growth.tokens[node] < allowed.shape[0]:
            return BAD_TOKEN, node
        if not allowed[growth.tokens[node]]:
            return MASKED_TOKEN, node
        if not (np.isfinite(growth.logprobs[node]) and growth.logprobs[node] <= MAX_LOGPROB):
            return BAD_LOGPROB, node
    return FINE, 0


@njit()
def grow(tables: MirrorTables, growth: Growth) -> int:
    """Add the nodes of a growth without a fault; return the number that were dead on arrival."""
    nodes, ids, numbers = tables.nodes, tables.ids, tables.numbers
    root = growth.root_position
    _acknowledge(tables, root)
    position, count, id_count = numbers[ROOT_POSITION], numbers[COUNT], numbers[ID_COUNT]
    of_draft, dropped = numbers[DRAFTED], 0
    for i in range(growth.parents.shape[0]):
        token = growth.tokens[i]
        above = committed_at(root)
        if growth.parents[i] > 0:
            above = _state_of(ids, id_count, growth.parents[i])
        state = UNKNOWN
        if above >= 0 or above == committed_at(position):
            above = max(above, ROOT)
            node = child_of(nodes.parent, nodes.token, count, above, token)
            if of_draft < numbers[CAPACITY] and (node == DEAD or nodes.first_id[node] == 0):
                if node == DEAD:
                    node = count
                    count += 1
                    _place(nodes, node, above, token)
                elif nodes.proposer[node] != DRAFT:
                    nodes.other[node] = nodes.proposer[node]
                    nodes.other_logprob[node] = nodes.logprob[node]
                _set_proposer(nodes, node, DRAFT, growth.first_id + i, growth.logprobs[i])
                of_draft += 1
            if node != DEAD:
                state = node
        elif above != UNKNOWN and token == tables.tokens[committed_at(above) + 1]:
            state = committed_at(committed_at(above) + 1)
        if state == UNKNOWN or id_count == ids.id.shape[0]:
            dropped += 1
        else:
            ids.id[id_count] = growth.first_id + i
            ids.state[id_count] = state
            id_count += 1
    numbers[COUNT], numbers[DRAFTED], numbers[ID_COUNT] = count, of_draft, id_count
    last_id = growth.first_id + growth.parents.shape[0] - 1
    numbers[LAST_ID] = max(numbers[LAST_ID], last_id)
    return dropped


@njit()
def _acknowledge(tables: MirrorTables, root: int) -> None:
    """Forget the ids that were committed before `root`, the draft's."""
    numbers = tables.numbers
    if root != numbers[ACKNOWLEDGED]:
        numbers[ACKNOWLEDGED] = root
        numbers[ID_COUNT] = _forget(tables.ids, numbers[ID_COUNT], root)


@njit()
def add_local(
    mirror: MirrorHandle, parents: Ints, tokens: Ints, logprobs: Floats, proposer: int
) -> int:
    """Do `add_nodes` by the mirror's handle."""
    return int(add_nodes(mirror.value, parents, tokens, logprobs, proposer))


@njit()
def add_nodes(
    tables: MirrorTables, parents: Ints, tokens: Ints, logprobs: Floats, proposer: int
) -> int:
    """Add nodes without ids while there is room; return the number that were added.

    To a node that is there already, what is added is the estimate alone.
    """
    nodes, numbers = tables.nodes, tables.numbers
    start = count = numbers[COUNT]
    local = count - numbers[DRAFTED]
    placed = np.full(parents.shape[0], DEAD, np.int32)
    for i in range(parents.shape[0]):
        above = parents[i] if parents[i] < start else placed[parents[i] - start]
        if above == DEAD:
            continue
        placed[i] = child_of(nodes.parent, nodes.token, count, above, tokens[i])
        if placed[i] != DEAD:
            _propose_again(nodes, placed[i], proposer, logprobs[i])
        elif local < numbers[LOCAL_CAPACITY]:
            _place(nodes, count, above, tokens[i])
            _set_proposer(nodes, count, proposer, 0, logprobs[i])
            placed[i] = count
            count += 1
            local += 1
    numbers[COUNT] = count
    return int(count - start)


@njit()
def add_proposals(
    tables: MirrorTables, parents: Ints, tokens: Ints, logprobs: Floats, proposer: int
) -> int:
    """Add what a source has found, and return what `add_nodes` does; `parents` are indices into
    what was found, or `ROOT`."""
    for i in range(parents.shape[0]):
        if parents[i] != ROOT:
            parents[i] += tables.numbers[COUNT]
    return int(add_nodes(tables, parents, tokens, logprobs, proposer))


@njit()
def commit(tables: MirrorTables, tokens: Ints) -> bool:
    """Move the root along `tokens`; the survivors keep their order. True for a fall-in."""
    nodes, numbers = tables.nodes, tables.numbers
    count, position = numbers[COUNT], numbers[ROOT_POSITION]
    path = descend(nodes.parent, nodes.token, count, tokens)
    renumbered = survivors(nodes.parent, count, path, tokens.shape[0])
    numbers[ID_COUNT] = _commit_ids(tables.ids, numbers[ID_COUNT], renumbered, path, position)
    kept = drafted = 0
    for node in range(count):
        if renumbered[node] >= 0:
            _move(nodes, node, kept, renumbered, tokens.shape[0])
            drafted += nodes.first_id[kept] > 0
            kept += 1
    numbers[COUNT], numbers[DRAFTED] = kept, drafted
    tables.tokens[position + 1 : position + 1 + tokens.shape[0]] = tokens
    numbers[ROOT_POSITION] = position + tokens.shape[0]
    if not numbers[ATTACHED]:
        numbers[ACKNOWLEDGED] = numbers[ROOT_POSITION]
    return bool(path.shape[0] == tokens.shape[0])


@njit()
def commit_tokens(mirror: MirrorHandle, tokens: Ints) -> bool:
    """Do `commit` by the mirror's handle."""
    return bool(commit(mirror.value, tokens))


@njit()
def _forget(ids: NodeIds, count: int, position: int) -> int:
    """Drop ids committed before `position`; return the new count of ids."""
    kept = 0
    for i in range(count):
        state = ids.state[i]
        if state >= 0 or committed_at(state) >= position:
            ids.id[kept] = ids.id[i]
            ids.state[kept] = state
            kept += 1
    return kept


@njit()
def committed_at(position: int) -> int:
    """Return the state of an id that is the committed token at `position`; its own inverse."""
    return -1 - position


@njit()
def _state_of(ids: NodeIds, count: int, wanted: int) -> int:
    """Return the state of the id `wanted`, by binary search."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ids.id[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < count and ids.id[low] == wanted:
        return int(ids.state[low])
    return UNKNOWN


@njit()
def _commit_ids(ids: NodeIds, count: int, renumbered: Ints, path: Ints, position: int) -> int:
    """Update states for a commit after `position`; return the new count of ids.

    `path` holds the nodes that became committed tokens, `renumbered` the survivors' new indices.
    """
    kept = 0
    for i in range(count):
        state = ids.state[i]
        if state >= 0:
            step = _index_in(path, state)
            if step >= 0:
                state = committed_at(position + 1 + step)
            elif renumbered[state] >= 0:
                state = renumbered[state]
            else:
                continue
        ids.id[kept] = ids.id[i]
        ids.state[kept] = state
        kept += 1
    return kept


@njit()
def _index_in(path: Ints, node: int) -> int:
    for step in range(path.shape[0]):
        if path[step] == node:
            return step
    return -1


@njit()
def _place(nodes: MirrorNodes, node: int, above: int, token: int) -> None:
    nodes.parent[node] = above
    nodes.token[node] = token
    nodes.depth[node] = 1 if above == ROOT else nodes.depth[above] + 1
    nodes.other[node] = NOBODY


@njit()
def _propose_again(nodes: MirrorNodes, node: int, proposer: int, logprob: float) -> None:
    """Note what a local proposer thinks of a node; of them a prediction is heard, else the first
    one."""
    is_heard, logprob = proposer == PREDICTION, min(float(logprob), 0.0)
    if nodes.proposer[node] == DRAFT:
        if is_heard or nodes.other[node] in (NOBODY, proposer):
            nodes.other[node], nodes.other_logprob[node] = proposer, logprob
    elif is_heard or nodes.proposer[node] == proposer:
        nodes.proposer[node], nodes.logprob[node] = proposer, logprob


@njit()
def counted_source(nodes: MirrorNodes, node: int) -> int:
    """Return what a node's row is counted for: its prediction where that has proposed it too."""
    return PREDICTION if nodes.other[node] == PREDICTION else int(nodes.proposer[node])


@njit()
def _set_proposer(
    nodes: MirrorNodes, node: int, proposer: int, first_id: int, logprob: float
) -> None:
    nodes.logprob[node] = min(float(logprob), 0.0)  # rounding may leave it just above 0
    nodes.proposer[node] = proposer
    nodes.first_id[node] = first_id


@njit()
def _move(nodes: MirrorNodes, node: int, to: int, renumbered: Ints, risen: int) -> None:
    above = nodes.parent[node]
    nodes.parent[to] = ROOT if above == ROOT or renumbered[above] < 0 else renumbered[above]
    nodes.token[to] = nodes.token[node]
    nodes.depth[to] = nodes.depth[node] - risen
    nodes.logprob[to] = nodes.logprob[node]
    nodes.proposer[to] = nodes.proposer[node]
    nodes.other_logprob[to], nodes.other[to] = nodes.other_logprob[node], nodes.other[node]
    nodes.first_id[to] = nodes.first_id[node]
