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
    grow_reference,
)
from tests.kernel_outputs import unwritten

BRANCH = 8
GROUP_ROWS = 2
START = Header(
    nodes=0, candidates=0, rows=1, root=70, width=4, depth=6, ahead=40, fan=6, room=192, bonus=0
)
"""The root's row is running."""


def growth_of(header: Header, device: str) -> TreeGrowth:
    """A tree without nodes; what nobody has written shows."""

    def ints(size: int) -> Tensor:
        return unwritten(size, dtype=torch.int32, device=device)

    def floats(size: int) -> Tensor:
        return unwritten(size, dtype=torch.float32, device=device)

    chosen = torch.full((MAX_GROWTH_ROWS,), -1, dtype=torch.int32, device=device)
    return TreeGrowth(
        torch.tensor(header, dtype=torch.int32, device=device),
        chosen,
        *(ints(NODES) for _ in range(4)),
        floats(NODES),
        *(ints(CANDIDATES) for _ in range(2)),
        floats(CANDIDATES),
    )


def rows_of(count: int, device: str) -> NextRows:
    """Rows that nobody has written, and the session's table: blocks 9, 4 and 6."""

    def ints(*shape: int) -> Tensor:
        return unwritten(*shape, dtype=torch.int32, device=device)

    tables = torch.tensor([[9, 4, 6]], dtype=torch.int32, device=device)
    groups = ints(-(-count // GROUP_ROWS), 2)
    context = ContextRows(ints(count), ints(count), ints(count, 64), ints(count), tables, groups)
    return NextRows(*(ints(count) for _ in range(5)), context)


def children(seed: int, rows: int, device: str) -> tuple[Tensor, Tensor]:
    """Ranked children of a pass."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 1000, (rows, BRANCH)).astype(np.int32)
    logprobs = -np.sort(generator.exponential(2.0, (rows, BRANCH)), 1).astype(np.float32)
    logprobs[:, -1] = -np.inf
    return torch.from_numpy(tokens).to(device), torch.from_numpy(logprobs).to(device)


def tensors(growth: TreeGrowth, rows: NextRows, record: Tensor) -> dict[str, Tensor]:
    """All that a pass may write, by name."""
    found = {f.name: getattr(growth, f.name) for f in fields(TreeGrowth)} | {"record": record}
    found |= {f.name: getattr(rows, f.name) for f in fields(NextRows) if f.name != "context"}
    return found | {f"of {f.name}": getattr(rows.context, f.name) for f in fields(ContextRows)}


def assert_grows_alike(header: Header, count: int, passes: int, device: str) -> list[Header]:
    """Kernel and reference leave the same in all memory; returns the headers."""
    one, other = (growth_of(header, device) for _ in range(2))
    headers = []
    for number in range(passes):
        ranked, logprobs = children(number, count, device)
        results = []
        for function, growth in ((grow, one), (grow_reference, other)):
            rows, record = (
                rows_of(count, device),
                unwritten(count * 69, dtype=torch.int32, device=device),
            )
            function(growth, ranked, logprobs, rows, record, GROUP_ROWS)
            results.append(tensors(growth, rows, record))
        live = int(one.header[2])
        for name, tensor in results[0].items():
            own, wanted = tensor.cpu().numpy(), results[1][name].cpu().numpy()
            if name == "chosen":
                own, wanted = own[:live], wanted[:live]
            assert np.array_equal(own, wanted, equal_nan=own.dtype == np.float32), name
        headers.append(Header(*one.header.tolist()))
    return headers


def test_a_chain_grows_as_the_reference_does(device: str) -> None:
    headers = assert_grows_alike(START, 4, 4, device)
    assert [h.rows for h in headers] == [4, 4, 4, 4]
    assert [h.nodes for h in headers] == [6, 12, 18, 24]


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"ahead": 10}, [4, 0, 0]),  # nodes ahead are reached, and the tree rests
        ({"depth": 2}, [4, 2, 1]),
        ({"depth": 1}, [0, 0, 0]),  # no children may be expanded
        ({"room": 80}, [4, 4, 0]),  # offset 80 is beyond the region
        ({"width": 3}, [3, 3, 3]),
        ({"fan": 2, "bonus": int(np.float32(1.5).view(np.int32))}, [2, 2, 2]),
        ({"rows": 0}, [0, 0, 0]),  # a chain that has ended
    ],
)
def test_limits_hold_on_the_device(change: dict[str, int], rows: list[int], device: str) -> None:
    headers = assert_grows_alike(START._replace(**change), 5, 3, device)
    assert [h.rows for h in headers] == rows
    assert all(h.nodes <= h.ahead for h in headers)


def test_a_record_that_does_not_fit_is_named(device: str) -> None:
    ranked, logprobs = children(0, 1, device)
    with pytest.raises(ValueError, match="record"):
        grow(
            growth_of(START, device), ranked, logprobs, rows_of(1, device),
            torch.zeros(70, dtype=torch.int32), GROUP_ROWS,
        )  # fmt: skip
