"""Fields of host buffers that compiled code writes; loads no torch.

The index of compiled code names their classes, and a worker on a CPU without torch reads it too.
"""

from typing import NamedTuple

from outrider.worker.kv.block_pool import Int32
from outrider.worker.tree.growth import Floats, Ints


class PassFields(NamedTuple):
    """Fields of a pass but for those of sampling, as `input_layout.input_shapes` has them."""

    tokens: Int32
    positions: Int32
    slots: Int32
    sequence: Int32
    prefix: Int32
    depth: Int32
    ancestors: Int32
    groups: Int32
    outputs: Int32
    sources: Int32
    destinations: Int32
    tables: Int32


class TreeFields(NamedTuple):
    """Fields of a staged tree but for its header, as `chained_passes.TREE` has them."""

    leaves: Ints
    parent: Ints
    token: Ints
    depth: Ints
    slot: Ints
    score: Floats
    candidate_parent: Ints
    candidate_token: Ints
    candidate_score: Floats
