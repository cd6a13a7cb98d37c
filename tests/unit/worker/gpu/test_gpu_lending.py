"""A draft's memory on its target's device: pages that move, and all that has to stay."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.contract.settings import Dtype, ModelSettings, OffloadKind, WorkerSettings
from outrider.contract.state import DraftMemoryState
from outrider.worker.errors import ModelError
from outrider.worker.gpu import device_pages
from outrider.worker.gpu.device_pages import DevicePages, DeviceRegion, NoPages
from outrider.worker.gpu.kv_cache import PagedKVCache
from outrider.worker.gpu.lending import Lending, lent_blocks
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.movable_weights import MovableDeviceWeights
from outrider.worker.kv.block_pool import BLOCK, BlockTable
from outrider.worker.launch.build_colocated import lender_of, load_on_one_device
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.memory_lender import MemoryLender
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.movable_weights import CopyFailed
from outrider.worker.model.rows import prompt_rows
from tests import host_pages
from tests.gpu_models import on_device, write
from tests.unit.worker.gpu.test_gpu_engine import settings

NOTHING = np.empty(0, np.int32)
ON_HOST, ON_DEVICE = DraftMemoryState.ON_HOST, DraftMemoryState.ON_DEVICE
BLOCK_BYTES = BLOCK * 32 * 4
"""Bytes of a block of one key head, in fp32."""
TOKENS = np.random.default_rng(0).integers(0, 256, 40).astype(np.int32)


def test_a_region_keeps_its_addresses_and_gives_pages_to_the_next(device: str) -> None:
    pages = host_pages.pages(device)
    one, other = DeviceRegion(pages, 3 * pages.page), DeviceRegion(pages, 2 * pages.page)
    one.map(0, one.size)
    view = one.view()
    view.fill_(7)
    pages.driver.settle()
    one.unmap(pages.page, one.size)
    other.map(0, 2 * pages.page)  # of what was given up
    assert (one.mapped_pages, other.mapped_pages) == (1, 2)
    assert other.view().unique().tolist() == [7]
    assert view[: pages.page].unique().tolist() == [7]
    one.map(0, one.size)
    view.fill_(5)
    assert other.view().unique().tolist() == [7]


def test_a_region_that_gets_no_pages_is_as_it_was() -> None:
    pages = DevicePages(host_pages.HostDriver(most=3))
    one, other = DeviceRegion(pages, 2 * pages.page), DeviceRegion(pages, 2 * pages.page)
    one.map(0, one.size)
    with pytest.raises(NoPages, match="OUT_OF_MEMORY"):
        other.map(0, other.size)
    assert (one.mapped_pages, other.mapped_pages) == (2, 0)
    one.unmap(0, one.size)
    other.map(0, other.size)


def config_of(folder: Path) -> ModelConfig:
    return on_device(folder, "cpu").config


def paged(device: str, config: ModelConfig, units: int, most: int) -> PagedKVCache:
    pages = host_pages.pages(device)
    unit = pages.page // BLOCK_BYTES
    kind = torch.float32
    return PagedKVCache(config, units * unit, unit * BLOCK, kind, pages, most=most * unit)


def table_of(kv_cache: PagedKVCache, slots: int) -> BlockTable:
    found = kv_cache.admit(NOTHING, slots)
    assert found is not None
    return found


def test_kv_grows_in_place_and_what_lies_in_a_slab_that_goes_moves(
    tmp_path: Path, device: str
) -> None:
    config = config_of(write(tmp_path / "tiny"))
    kv_cache = paged(device, config, 1, 3)
    unit, before = kv_cache.unit, kv_cache.mapped_pages
    first = table_of(kv_cache, (unit - 1) * BLOCK)
    kv_cache.k[:, :, : (unit - 1) * BLOCK] = 3
    address = kv_cache.k.data_ptr()
    kv_cache.expand(2 * unit)
    assert kv_cache.mapped_pages == before + 2 * kv_cache.unit_pages
    late = table_of(kv_cache, 2 * BLOCK)
    kv_cache.free(first)
    offsets = np.arange(2 * BLOCK, dtype=np.int32)
    values = torch.arange(2 * BLOCK, dtype=torch.float32, device=kv_cache.k.device)
    kv_cache.v[:, :, torch.from_numpy(late.slots(offsets)).long(), 0] = values
    moves = kv_cache.contract(2 * unit)
    assert moves is not None
    assert len(moves.sources) == 1  # of `late`, one block was the last of its own
    assert (kv_cache.mapped_pages, kv_cache.k.data_ptr()) == (before, address)
    kept = kv_cache.v[:, :, torch.from_numpy(late.slots(offsets)).long(), 0]
    assert bool((kept == values).all())
    kv_cache.free(late)
    kv_cache.expand(unit)  # by pages that hold old numbers
    assert bool((kv_cache.k[:, :, unit * BLOCK : 2 * unit * BLOCK] == 0).all())
    with pytest.raises(ValueError, match=f"there are addresses for {3 * unit}"):
        kv_cache.expand(3 * unit)


def test_all_of_a_draft_s_kv_may_go(tmp_path: Path, device: str) -> None:
    kv_cache = paged(device, config_of(write(tmp_path / "tiny")), 2, 2)
    own, pages = kv_cache.blocks, kv_cache.mapped_pages
    assert kv_cache.contract(own) is not None
    assert (kv_cache.blocks, kv_cache.mapped_pages) == (0, 0)
    kv_cache.expand(own)
    assert (kv_cache.blocks, kv_cache.mapped_pages) == (own, pages)


def test_blocks_are_whole_units_and_hold_the_longest_sequence(tmp_path: Path, device: str) -> None:
    config, pages = config_of(write(tmp_path / "tiny")), host_pages.pages(device)
    unit = pages.page // BLOCK_BYTES

    def blocks(asked: int, longest: int) -> int:
        return PagedKVCache(config, asked, longest * BLOCK, torch.float32, pages).blocks

    assert blocks(2 * unit - 1, unit) == unit
    assert blocks(unit - 1, 1) == unit
    assert blocks(2 * unit, unit + 1) == 2 * unit
    assert blocks(1, unit + 1) == 2 * unit


def test_an_expansion_without_pages_changes_nothing(tmp_path: Path) -> None:
    config, driver = config_of(write(tmp_path / "tiny")), host_pages.HostDriver()
    pages, unit = DevicePages(driver), driver.page // BLOCK_BYTES
    kv_cache = PagedKVCache(config, unit, BLOCK, torch.float32, pages, most=2 * unit)
    before = kv_cache.mapped_pages
    driver.most = before + 3
    with pytest.raises(NoPages):
        kv_cache.expand(unit)
    assert (kv_cache.blocks, kv_cache.mapped_pages) == (unit, before)
    driver.most = 2 * before
    kv_cache.expand(unit)
    assert kv_cache.mapped_pages == 2 * before


@pytest.fixture
def draft(tmp_path: Path, device: str) -> tuple[GpuModel, MovableDeviceWeights, DevicePages]:
    """A model whose weights may leave."""
    pages = host_pages.pages(device)
    model = on_device(write(tmp_path / "draft"), device)
    weights = MovableDeviceWeights(model.forward_pass.weights, pages)
    model.forward_pass.weights = weights.weights
    return model, weights, pages


def logits(model: GpuModel) -> np.ndarray:
    table = model.kv_cache.admit(NOTHING, 64)
    assert table is not None
    found = model.forward(prompt_rows(TOKENS[:20], 0, table, True)).copy()
    model.kv_cache.free(table)
    return found


def finish(weights: MovableDeviceWeights) -> None:
    while not weights.finished():
        pass


def test_weights_come_back_bit_by_bit_to_the_same_addresses(
    draft: tuple[GpuModel, MovableDeviceWeights, DevicePages],
) -> None:
    model, weights, pages = draft
    before, address = logits(model), weights.weights.embedding.data_ptr()
    held = weights.mapped_pages
    assert held * pages.page == weights.bytes
    assert weights.weights.head.values.data_ptr() == address  # tied: one copy
    weights.offload()
    finish(weights)
    assert weights.mapped_pages == 0
    other = DeviceRegion(pages, weights.bytes)
    other.map(0, other.size)
    other.view().fill_(0)
    other.unmap(0, other.size)
    weights.reload()
    finish(weights)
    assert weights.mapped_pages == held
    assert not weights.finished()  # there is nothing to end
    assert np.array_equal(logits(model), before)


def test_weights_that_find_no_pages_stay_away_and_come_later(
    draft: tuple[GpuModel, MovableDeviceWeights, DevicePages], device: str
) -> None:
    if device != "cpu":
        pytest.skip("another card's memory is not to be filled up")
    model, weights, pages = draft
    before = logits(model)
    weights.offload()
    finish(weights)
    pages.driver.most = pages.driver.created  # type: ignore[attr-defined]
    other = DeviceRegion(pages, pages.page)
    other.map(0, other.size)
    with pytest.raises(CopyFailed, match="OUT_OF_MEMORY"):
        weights.reload()
    assert weights.mapped_pages == 0
    other.unmap(0, other.size)
    weights.reload()
    finish(weights)
    assert np.array_equal(logits(model), before)


@pytest.fixture
def pair(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[LoadedModel, LoadedModel]:
    """A target and its draft on one device, loaded as a worker loads them."""
    monkeypatch.setattr(device_pages, "pages_of", host_pages.pages)
    return load_on_one_device(*both(tmp_path, kv_bytes=16 * host_pages.pages(device).page))


def both(
    folder: Path, kv_bytes: int = 1 << 20, layers: int = 1, **changes: Any
) -> tuple[WorkerSettings, Any]:
    target = write(folder / "target", layers=layers, heads=2, kv_heads=1)
    draft = write(folder / "draft", layers=2)
    changes = {"offload_draft": OffloadKind.ALWAYS} | changes
    own = settings(target, folder, kv_bytes=kv_bytes, max_running=kv_bytes >> 14, **changes)
    own = dataclasses.replace(
        own,
        model=ModelSettings(uri=f"file://{target}", dtype=Dtype.FP32),
        colocated=ModelSettings(uri=f"file://{draft}", dtype=Dtype.FP32),
    )
    return own, prepare_models(own)


def test_a_target_s_kv_has_the_pages_of_its_draft_until_that_comes_back(
    pair: tuple[LoadedModel, LoadedModel],
) -> None:
    target, draft = pair
    lender = lender_of(target, draft)
    assert isinstance(lender, MemoryLender)
    kv_cache, model = target.kv_cache, draft.model
    assert isinstance(kv_cache, PagedKVCache)
    assert isinstance(model, GpuModel)
    own, lent, before = kv_cache.blocks, lender.memory.lent, logits(model)
    assert lent == lent_blocks(kv_cache, draft.kv_cache, model)
    assert lent > 0
    if isinstance(driver := kv_cache._driver, host_pages.HostDriver):
        driver.most = driver.created  # all memory that it ever takes was had at the start
    lender.offload(0.0)
    while lender.memory.state is not ON_HOST:
        lender.poll(0.0)
    assert (kv_cache.blocks, draft.kv_cache.blocks) == (own + lent, 0)
    assert lender.report().draft_weight_bytes == 0
    kv_cache.v[:, :, own * BLOCK :] = torch.nan  # of somebody else's answer
    lender.reload(0.0)
    while lender.memory.state is not ON_DEVICE:
        lender.poll(0.0)
    assert (kv_cache.blocks, draft.kv_cache.blocks) == (own, lender.draft_kv.blocks)
    assert np.array_equal(logits(model), before)


@pytest.mark.parametrize("kind", [OffloadKind.AUTO, OffloadKind.NEVER])
def test_nothing_is_lent_on_a_gpu_that_is_not_asked_to(
    kind: OffloadKind, tmp_path: Path, device: str
) -> None:
    assert lender_of(*load_on_one_device(*both(tmp_path, offload_draft=kind))) is None


REFUSED = (
    r"^settings\.offload_draft: always \(draft\.offload of a service\) is not allowed here, "
    r"%s; allowed: auto, never$"
)


def test_lending_that_cannot_be_had_is_refused(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_of(device: str) -> DevicePages:
        raise NoPages(f"{device} does not manage virtual memory")

    with pytest.raises(ModelError, match=REFUSED % "the target has 2 ranks"):
        load_on_one_device(*both(tmp_path, tensor_parallel=2))
    monkeypatch.setattr(device_pages, "pages_of", none_of)
    with pytest.raises(ModelError, match=REFUSED % ".* does not manage virtual memory"):
        load_on_one_device(*both(tmp_path))


def test_kv_that_cannot_grow_by_a_step_is_refused_unless_it_has_room_for_all(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_pages, "pages_of", host_pages.pages)
    page = host_pages.pages(device).page
    own, models = both(tmp_path, kv_bytes=16 * page, layers=16)  # half of a step
    grows = rf"the target's KV grows by {32 * page} bytes at once, .* settings\.kv_bytes"
    with pytest.raises(ModelError, match=REFUSED % grows):
        load_on_one_device(own, models)
    one = dataclasses.replace(own, max_running=1)
    assert lender_of(*load_on_one_device(one, models)) is None


def test_lending_says_which_part_a_model_has(tmp_path: Path, device: str) -> None:
    pages, config = host_pages.pages(device), config_of(write(tmp_path / "tiny"))
    unit = pages.page // BLOCK_BYTES
    for lends, usable, most in ((False, 9 * unit, 2), (True, 9 * unit, 1), (False, 1, 1)):
        kv_cache = Lending(pages, lends).kv_cache(
            config, unit, BLOCK, torch.float32, usable, prefix_cache=True
        )
        assert kv_cache.most == most * unit
