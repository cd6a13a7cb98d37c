"""Layout and padding of passes."""

import dataclasses
import itertools

import numpy as np
import pytest

from outrider.worker.gpu.buckets import ROWS, bucket, group_bucket, up_to
from outrider.worker.gpu.input_buffers import InputBuffers
from outrider.worker.gpu.input_layout import input_shapes, places_of
from outrider.worker.kv.block_pool import BlockPool, BlockTable
from outrider.worker.model.rows import CHUNK, joined, prompt_rows

NO_MOVES = (np.empty(0, np.int32), np.empty(0, np.int32))


def block_table(kv_cache: BlockPool) -> BlockTable:
    found = kv_cache.admit(np.empty(0, np.int32), 128)
    assert found is not None
    return found


def test_fields_lie_apart_and_where_kernels_read_quickly() -> None:
    places = places_of(input_shapes(24, 3, 5))
    found = list(places.values())
    assert all(a.stop <= b.start for a, b in itertools.pairwise(found))
    assert all(field.start % 4 == 0 for field in found)
    assert found[-1] == places["tables"]


def test_padding_sees_nothing_writes_nothing_and_moves_nothing(device: str) -> None:
    inputs = InputBuffers(24, 3, 2, 4, device)
    inputs.copies.static.fill_(77)
    inputs.copies.synchronize()
    kv_cache = BlockPool(6, 128)
    tokens = np.arange(1, 7, dtype=np.int32)
    parts = [prompt_rows(tokens[:n], 60, block_table(kv_cache), True) for n in (6, 3)]
    shape = inputs.stage(joined(parts), (tokens, tokens), None)
    inputs.copies.synchronize()
    assert shape == (16, 4, 2, 64)
    d = inputs.device
    assert d["tokens"][:16].tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3] + [0] * 7
    assert d["slots"][9:16].tolist() == [-1] * 7
    assert d["prefix"][9:16].tolist() == d["depth"][9:16].tolist() == [0] * 7
    assert d["groups"][:4].tolist() == [[0, 4], [4, 2], [6, 3], [0, 0]]
    assert d["outputs"][:2].tolist() == [5, 8]
    assert d["sources"][:64].tolist() == [1, 2, 3, 4, 5, 6] + [-1] * 58
    assert d["tables"][:2].tolist() == [[0, 1], [2, 3]]


def test_a_row_of_the_library_has_the_number_of_its_position(device: str) -> None:
    inputs = InputBuffers(CHUNK, 3, 4, 16, device)
    inputs.copies.static.fill_(77)
    inputs.copies.synchronize()
    own = BlockPool(6, 192).admit(np.empty(0, np.int32), 192)
    assert own is not None
    tokens = np.array([5, 6, 7], np.int32)
    shape = inputs.stage(prompt_rows(tokens, 130, own, True, by_library=True), NO_MOVES, None)
    inputs.copies.synchronize()
    assert shape == (CHUNK, CHUNK // 16, 1, 0)
    d, rest = inputs.device, CHUNK - 5
    slots = own.slots(np.arange(130, 133, dtype=np.int32)).tolist()
    assert d["tokens"].tolist() == [0, 0, 5, 6, 7] + [0] * rest
    assert d["slots"].tolist() == [-1, -1, *slots] + [-1] * rest
    assert d["prefix"].tolist() == [0, 0, 131, 132, 133] + [0] * rest
    assert d["groups"][:8].tolist() == [[2, 3]] + [[0, 0]] * 7
    assert d["outputs"][:1].tolist() == [4]


def test_the_next_pass_may_be_staged_before_this_one_has_run(device: str) -> None:
    """Two alternating host buffers: what a copy may still read is not written."""
    inputs = InputBuffers(4, 1, 2, 4, device)
    kv_cache = BlockPool(2, 128)
    rows = prompt_rows(np.array([5], np.int32), 0, block_table(kv_cache), True)
    inputs.stage(rows, NO_MOVES, None)
    first = [host.clone() for host in inputs.copies.hosts]
    inputs.stage(dataclasses.replace(rows, tokens=np.array([6], np.int32)), NO_MOVES, None)
    kept = [bool((a == b).all()) for a, b in zip(first, inputs.copies.hosts, strict=True)]
    assert sorted(kept) == [False, True]


def test_buckets_hold_what_they_are_for() -> None:
    for count in range(1, 129):
        size = bucket(count, ROWS)
        assert count <= size <= max(2 * count, 1)
        for groups in range(1, count + 1):
            assert groups <= group_bucket(groups, size) <= size
    assert up_to(40) == (1, 2, 4, 8, 16, 24, 32, 40)
    with pytest.raises(ValueError, match="129: at most 128 fit"):
        bucket(129, ROWS)
