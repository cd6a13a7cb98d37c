from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.attention_inputs import ContextRows
from outrider.kernels.gpu.tree_growth import (
    CANDIDATES,
    MAX_GROWTH_ROWS,
    NODES,
    Header,
    NextRows,
    TreeGrowth,
    grow,
)
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.walk import ROOT
from tests.kernel_outputs import unwritten

BRANCH = 8
TABLE = BlockTable(np.arange(16, dtype=np.int32), 0, 0, b"", False)
"""The host's: slots are offsets."""
GROUP_ROWS = 2
START = Header(
    nodes=0,
    candidates=0,
    rows=1,
    root=70,
    width=4,
    depth=6,
    nodes_ahead=40,
    max_new_nodes=6,
    room=192,
    depth_bonus=0,
)
"""The root's row is running."""


def growth_of(header: Header, device: str) -> TreeGrowth:
    """A tree without nodes; memory that was not written shows."""

    def ints(size: int) -> Tensor:
        return unwritten(size, dtype=torch.int32, device=device)

    def floats(size: int) -> Tensor:
        return unwritten(size, dtype=torch.float32, device=device)

    leaves = torch.full((MAX_GROWTH_ROWS,), -1, dtype=torch.int32, device=device)
    return TreeGrowth(
        torch.tensor(header, dtype=torch.int32, device=device),
        leaves,
        *(ints(NODES) for _ in range(4)),
        floats(NODES),
        *(ints(CANDIDATES) for _ in range(2)),
        floats(CANDIDATES),
    )


def rows_of(count: int, device: str) -> NextRows:
    """Unwritten rows, and the session's table: blocks 9, 4 and 6."""

    def ints(*shape: int) -> Tensor:
        return unwritten(*shape, dtype=torch.int32, device=device)

    tables = torch.tensor([[9, 4, 6]], dtype=torch.int32, device=device)
    groups = ints(-(-count // GROUP_ROWS), 2)
    context = ContextRows(ints(count), ints(count), ints(count, 64), ints(count), tables, groups)
    return NextRows(*(ints(count) for _ in range(5)), context)


def children_of(seed: int, rows: int, device: str) -> tuple[Tensor, Tensor]:
    """Children of a pass, best first."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 1000, (rows, BRANCH)).astype(np.int32)
    logprobs = -np.sort(generator.exponential(2.0, (rows, BRANCH)), 1).astype(np.float32)
    logprobs[:, -1] = -np.inf
    return torch.from_numpy(tokens).to(device), torch.from_numpy(logprobs).to(device)


class HostTree:
    """The same session by `worker.tree`, as a draft's scheduler grows it."""

    def __init__(self, header: Header) -> None:
        self.limits = header
        self.tree = DraftTree(header.root + 1, NODES, candidate_capacity=CANDIDATES)
        self.tree.mark_prefilled(header.root + 1)
        self.rows = DraftRows(MAX_GROWTH_ROWS, NODES)
        self.leaves = np.array([ROOT] * header.rows, np.int32)
        self.offsets = np.array([header.root] * header.rows, np.int32)

    def grow(self, children: np.ndarray, logprobs: np.ndarray, width: int) -> RowColumns:
        """Takes a pass's children in; the rows of the next, none where the chain ends."""
        tree, limits, count = self.tree, self.limits, len(self.leaves)
        if count:
            bonus = float(np.int32(limits.depth_bonus).view(np.float32))
            tree.offer(self.leaves, self.offsets, children[:count], logprobs[:count], bonus)
            tree.send(limits.nodes_ahead, limits.max_new_nodes, limits.depth)
            if len(tree) < limits.nodes_ahead:
                tree.expand(self.rows, TABLE, min(limits.width, width), limits.depth)
        rows = self.rows.take()
        if len(rows.slot) and rows.slot[-1] >= limits.room:
            rows = self.rows.take()
        self.leaves, self.offsets = rows.leaf, rows.offset
        return rows


def assert_same_tree(growth: TreeGrowth, host: HostTree, before: TreeGrowth) -> None:
    """Nodes, candidates and the rows that run; what is beyond them was left alone."""
    header, nodes = Header(*growth.header.tolist()), host.tree.nodes
    assert (header.nodes, header.rows) == (len(host.tree), len(host.leaves))
    assert growth.leaves[: header.rows].tolist() == host.leaves.tolist()
    slots = nodes.slot.copy()
    slots[host.leaves] = host.offsets  # the host takes them when they have run
    wanted = (nodes.parent, nodes.token, nodes.depth, slots, nodes.score)
    for name, column in zip(("parent", "token", "depth", "slot", "score"), wanted, strict=True):
        own = getattr(growth, name).cpu().numpy()
        assert np.array_equal(own[: header.nodes], column), name
        kept = getattr(before, name).cpu().numpy()
        floats = own.dtype == np.float32
        assert np.array_equal(own[header.nodes :], kept[header.nodes :], equal_nan=floats), name
    alive = [
        one
        for one in zip(
            growth.candidate_parent[: header.candidates].tolist(),
            growth.candidate_token[: header.candidates].tolist(),
            growth.candidate_score[: header.candidates].tolist(),
            strict=True,
        )
        if one[2] > -np.inf
    ]
    left = host.tree.candidates
    offered = zip(left.parent.tolist(), left.token.tolist(), left.score.tolist(), strict=True)
    assert sorted(alive) == sorted(offered)


def assert_same_rows(rows: NextRows, record: Tensor, wanted: RowColumns, host: HostTree) -> None:
    """Rows where the next pass reads them, and in the record; padded ones see nothing."""
    context, width, count = rows.context, len(rows.tokens), len(wanted.token)
    table = context.tables[0].tolist()
    columns = np.zeros((5, width), np.int32)
    columns[2] = -1
    depth = wanted.depth
    slots = [table[slot // 64] * 64 + slot % 64 for slot in wanted.slot.tolist()]
    columns[:, :count] = wanted.token, wanted.position, slots, wanted.prefix, depth
    written = record.cpu().numpy()
    assert np.array_equal(written[: 5 * width].reshape(5, width), columns)
    places = (rows.tokens, rows.positions, rows.slots, context.prefix, context.depth)
    assert [place.tolist() for place in places] == columns.tolist()
    assert rows.sampled_at.tolist() == (columns[1] + 1).tolist()
    assert rows.outputs.tolist() == list(range(width))
    assert context.sequence.tolist() == [0] * width
    for line in range(width):
        path = wanted.ancestors[line, : depth[line]].tolist() if line < count else []
        for found in (context.ancestors[line], record[5 * width :].view(width, 64)[line]):
            rest = unwritten(64 - len(path), dtype=torch.int32, device="cpu")
            assert found.tolist() == path + rest.tolist()
    sizes = [min(max(count - g * GROUP_ROWS, 0), GROUP_ROWS) for g in range(len(context.groups))]
    groups = [[g * GROUP_ROWS if size else 0, size] for g, size in enumerate(sizes)]
    assert context.groups.tolist() == groups


def assert_grows_alike(header: Header, count: int, passes: int, device: str) -> list[Header]:
    """The kernel's passes against the host's; returns the headers."""
    growth, host, headers = growth_of(header, device), HostTree(header), []
    for number in range(passes):
        children, logprobs = children_of(number, count, device)
        before = TreeGrowth(*(getattr(growth, f.name).clone() for f in fields(TreeGrowth)))
        rows, record = (
            rows_of(count, device),
            unwritten(count * 69, dtype=torch.int32, device=device),
        )
        grow(growth, children, logprobs, rows, record, GROUP_ROWS)
        wanted = host.grow(children.cpu().numpy(), logprobs.cpu().numpy(), count)
        assert_same_tree(growth, host, before)
        assert_same_rows(rows, record, wanted, host)
        headers.append(Header(*growth.header.tolist()))
    return headers


def test_a_chain_grows_as_the_scheduler_does(device: str) -> None:
    headers = assert_grows_alike(START, 4, 4, device)
    assert [h.rows for h in headers] == [4, 4, 4, 4]
    assert [h.nodes for h in headers] == [6, 12, 18, 24]


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"nodes_ahead": 10}, [4, 0, 0]),  # nodes ahead are reached, and the tree rests
        ({"depth": 2}, [4, 2, 1]),
        ({"depth": 1}, [0, 0, 0]),  # no children may be expanded
        ({"room": 80}, [4, 4, 0]),  # offset 80 is beyond the region
        ({"width": 3}, [3, 3, 3]),
        ({"max_new_nodes": 2, "depth_bonus": int(np.float32(1.5).view(np.int32))}, [2, 2, 2]),
        ({"rows": 0}, [0, 0, 0]),  # a chain that has ended
    ],
)
def test_limits_hold_on_the_device(change: dict[str, int], rows: list[int], device: str) -> None:
    headers = assert_grows_alike(START._replace(**change), 5, 3, device)
    assert [h.rows for h in headers] == rows
    assert all(h.nodes <= h.nodes_ahead for h in headers)


def test_a_record_that_does_not_fit_is_named(device: str) -> None:
    children, logprobs = children_of(0, 1, device)
    with pytest.raises(ValueError, match="record"):
        grow(
            growth_of(START, device), children, logprobs, rows_of(1, device),
            torch.zeros(70, dtype=torch.int32), GROUP_ROWS,
        )  # fmt: skip
