"""Models on a device whose launches cost nothing, for `bench.host_tree`.

The GPU runners are the product's, over CPU tensors; what they launch only takes a pass's time and
writes what a device would, which is not timed. Copies are the CPU's: calls of CUDA itself are not
in the figures.
"""

import sys
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.gpu.cases.kernel_case import Backing
from bench.gpu.random_model import random_model
from bench.host_tree.loops import LONGEST, Passes
from bench.host_tree.models import (
    CHILDREN,
    OUTPUTS,
    SHARES,
    UNLIKELY,
    VOCABULARY,
    Pass,
    PassClock,
    children,
    next_tokens,
)
from bench.roofline.work import Shape
from outrider.contract.settings import MAX_DEPTH
from outrider.kernels.gpu.tree_growth import COLUMNS
from outrider.worker.draft.batch import DraftPart
from outrider.worker.gpu.chained_passes import ChainedPasses
from outrider.worker.gpu.cuda_graphs import CudaGraphs, Work
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.draft_table import DraftTables

SHAPE = Shape(name="fake", layers=1, hidden=64, ffn=64, heads=32, kv_heads=8, head_dim=32,
              vocabulary=VOCABULARY)  # fmt: skip
"""Heads share tiles of queries as Llama-3-8B's do; nothing else of a shape reaches the host."""
ROWS = 128


class FakeGraphs(CudaGraphs):
    """Launches that the clock takes for passes."""

    def __init__(self, clock: PassClock, run_pass: Pass) -> None:
        self._clock, self._run_pass = clock, run_pass

    def run(self, key: Hashable, work: Work) -> None:
        """Do what a device would, with a pass's time for a body."""
        counting = sys.getprofile()
        sys.setprofile(None)
        with self._clock:
            if isinstance(key, tuple) and key[0] == "body":
                self._run_pass()
            work()
        sys.setprofile(counting)


class NoLaunches:
    """A forward pass that computes nothing."""

    def body(self, n: int, groups: int, by_library: bool) -> None: ...
    def head(self, m: int) -> None: ...
    def move(self, moves: int) -> None: ...


class FakeSampling(NamedTuple):
    """Sampling of the tokens that follow, in place of a share's own."""

    model: GpuModel
    tokens: Tensor
    """[rows] the share's results."""

    def __call__(self, shape: object, variant: object, vocabulary: int) -> None:
        """Write the token after each output."""
        found = torch.from_numpy(next_tokens(inputs_of(self.model).numpy()))
        self.tokens[: len(found)] = found


class FakeScoring(NamedTuple):
    """Top children that follow from tokens, in place of a draft's own."""

    model: GpuModel

    def __call__(self, outputs: int, variant: object, tokens: Tensor, logprobs: Tensor) -> None:
        """Write the children of each output."""
        write_children(inputs_of(self.model)[:outputs].numpy(), tokens, logprobs)


class FakeChain(ChainedPasses):
    """A chain whose later passes run in a copy of the draft's tree, as its scheduler would ask."""

    def stage(self, part: DraftPart, max_new_nodes: int) -> None:
        """Remember what a device would read."""
        super().stage(part, max_new_nodes)
        self._part, self._max_new_nodes = part, max_new_nodes

    def launch(self, width: int, passes: int, variant: object) -> None:
        """Write the records and children of all passes."""
        part, session = self._part, self._part.session
        tree, rows = copy_of(session.tree), DraftRows(width, MAX_DEPTH)
        if session.needs_prefill:
            tree.mark_prefilled(part.count)
        leaves, offsets = part.leaves, part.offsets
        tokens = inputs_of(self._model)[: len(leaves)].numpy()
        for number, (record, found, logprobs) in enumerate(self._places(width, passes)):
            if number:
                slots = tree.root_position + 1 + np.count_nonzero(tree.nodes.slot >= 0) + width
                if slots <= session.block_table.room:  # else the chain ends here
                    most = session.limits.width
                    tree.expand(rows, session.block_table, most, session.depth_limit)
                columns = rows.take()
                leaves, offsets, tokens = columns.leaf, columns.offset, columns.token
                write_record(record.numpy(), columns, width)
            write_children(tokens, found, logprobs)
            here = slice(len(leaves))
            tree.offer(leaves, offsets, found[here].numpy(), logprobs[here].numpy())
            tree.send(session.limits.nodes_ahead, self._max_new_nodes, session.depth_limit)


def _arrays(tables: DraftTables) -> tuple[Any, ...]:
    return (*tables.nodes, *tables.candidates, tables.state)


def copy_of(tree: DraftTree) -> DraftTree:
    """Return a tree that can grow by itself."""
    old = tree._tables
    new = DraftTree(
        1, len(old.nodes.parent), candidate_capacity=len(old.candidates.parent),
        end_tokens=old.end_tokens, reading=old.reading,
    )  # fmt: skip
    for here, there in zip(_arrays(new._tables), _arrays(old), strict=True):
        here[:] = there
    return new


def write_record(record: NDArray[np.int32], columns: RowColumns, width: int) -> None:
    """Write the rows of a pass as `tree_growth.grow` does."""
    count, deepest = columns.ancestors.shape
    fields = record[: COLUMNS.value * width].reshape(-1, width)
    fields[:] = [[0], [0], [-1], [0], [0]]  # padding sees nothing, and has no slot
    names = ("token", "position", "slot", "prefix", "depth")
    fields[:, :count] = [getattr(columns, name) for name in names]
    paths = record[COLUMNS.value * width :].reshape(width, -1)
    paths[:count, :deepest] = columns.ancestors


def write_children(inputs: NDArray[np.int32], tokens: Tensor, logprobs: Tensor) -> None:
    """Write the children of tokens: likely ones, then others."""
    tokens.copy_(torch.arange(tokens.shape[1], dtype=torch.int32))
    logprobs.fill_(UNLIKELY)
    tokens[: len(inputs), :CHILDREN] = torch.from_numpy(children(inputs))
    logprobs[: len(inputs), :CHILDREN] = torch.from_numpy(SHARES)


def inputs_of(model: GpuModel) -> Tensor:
    """Return the token of each row with output, int32 [rows]; more than were asked for."""
    fields = model.inputs.device
    return fields["tokens"][fields["outputs"]]


def fake_model(clock: PassClock, run_pass: Pass) -> GpuModel:
    """Return a model whose graphs are fakes."""
    model = random_model(SHAPE, "bf16", LONGEST, ROWS, Backing("cpu", torch.float32), splits=3)
    model.graphs = FakeGraphs(clock, run_pass)
    model.forward_pass = NoLaunches()  # type: ignore[assignment]
    return model


def target_passes(run_pass: Pass, clock: PassClock) -> Passes:
    """Return a target's passes on the device."""
    model = fake_model(clock, run_pass)
    runner = GpuTargetRunner(model, VOCABULARY)
    share = runner._share
    share._sample = FakeSampling(model, share._tokens)  # type: ignore[union-attr, method-assign]
    return Passes(runner, clock, model.kv_cache)


def draft_passes(run_pass: Pass, clock: PassClock, chained: int) -> Passes:
    """Return a draft's passes on the device, so many a launch."""
    model = fake_model(clock, run_pass)
    runner = GpuDraftRunner(model, tuple(range(OUTPUTS)), VOCABULARY, chained=chained)
    runner._scoring.launch = FakeScoring(model)  # type: ignore[assignment, method-assign]
    runner._chain = FakeChain(model, runner._staging, runner._scoring, chained)
    return Passes(runner, clock, model.kv_cache)
