"""Models cut over several processes: the text of one, with the draft at work, for every family."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from outrider.client import Sampling
from outrider.contract.settings import Role, WorkerSettings
from tests.process import workers
from tests.process.workers import answer, assert_speculated, pair_with
from tests.tiny_models import write_draft_of, write_tiny

COUNT = 60
SAMPLINGS = (Sampling(), Sampling(temperature=0.8, top_p=0.9, seed=11))
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"hidden": 72, "heads": 9, "kv_heads": 3, "vocab": 301},
    "mistral": {"sliding_window": 24, "tie_word_embeddings": False},
    "qwen2": {"intermediate_size": 100},
    "qwen3": {"kv_heads": 1},
}
DEGREES = {"llama": (3, 2), "mistral": (2, 1), "qwen2": (4, 1), "qwen3": (3, 1)}
"""Of target and draft, by family."""


def settings_of(base: Path, role: Role, **changes: Any) -> WorkerSettings:
    model = base / str(role)
    changes = {"max_context": 256, "max_running": 2, **changes}
    return workers.settings_for(role, model, base / "cache", **changes)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target of one family, and a draft that often agrees."""
    base = tmp_path_factory.mktemp(request.param)
    (base / "family").write_text(request.param)
    target = write_tiny(base / "target", request.param, layers=3, **FAMILIES[request.param])
    write_draft_of(target, base / "draft", noise=0.01)
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
        given = [answer(shared, COUNT, sampling=s) for s in SAMPLINGS]
        refused = [answer(shared, COUNT, sampling=s, speculate=False) for s in SAMPLINGS]
    assert [one.tokens for one in refused] == expected
    assert [one.tokens for one in given] == expected
    for one in given:
        assert_speculated(one)
