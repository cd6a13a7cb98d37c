"""A draft's cache after many random re-roots gives the logits of a fresh forward pass."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.link.wire import Commit, Limits, Open
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows, prompt_rows
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.walk import ROOT
from tests.tiny_models import write_tiny

CONTEXT = 384
LONGEST = CONTEXT + 640
VOCABULARY = 512
LINK = 1
REROOTS = 60


def model_in(folder: Path) -> Llama:
    """A model over a KV cache of its own."""
    config = read_config(folder)
    kv_cache = HostKVCache(config.kv_shape, 2 * blocks_for(LONGEST), LONGEST)
    return Llama(config, load_file(folder / "model.safetensors"), NumericPath.FP32, kv_cache, 128)


class Kept:
    """A model that remembers the logits of its last pass."""

    def __init__(self, model: Llama) -> None:
        self.model = model
        self.logits = np.empty((0, 0), np.float32)

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """As the model."""
        logits = self.model.forward(rows)
        self.logits = logits.copy()
        return logits


def fresh_logits(model: Llama, tokens: list[int]) -> NDArray[np.float32]:
    """Of the last token, with nothing cached."""
    block_table = model.kv_cache.admit(np.empty(0, np.int32), len(tokens))
    assert block_table is not None
    for start in range(0, len(tokens), 64):
        chunk = np.array(tokens[start : start + 64], np.int32)
        logits = model.forward(prompt_rows(chunk, start, block_table, wants_output=True)).copy()
    model.kv_cache.free(block_table)
    return logits[0]


def path_to(tree: DraftTree, leaf: int) -> list[int]:
    """Tokens from the root's child to `leaf`."""
    path: list[int] = []
    while leaf != ROOT:
        path.insert(0, int(tree.nodes.token[leaf]))
        leaf = int(tree.nodes.parent[leaf])
    return path


def committed(session: DraftSession, rng: np.random.Generator) -> list[int]:
    """Tokens to commit: along the tree, out of it at once, or out of it after a while."""
    tree = session.tree
    path = path_to(tree, int(rng.integers(len(tree)))) if len(tree) else []
    path = path[: (len(path) + 1) // 2]  # there is something below it
    stray = [int(rng.integers(VOCABULARY))]
    kind = rng.integers(3)
    return (path if kind else []) + (stray if kind != 1 or not path else [])


@pytest.mark.parametrize("seed", range(3))
def test_logits_after_many_random_re_roots_are_those_of_a_fresh_forward(
    tmp_path: Path, seed: int
) -> None:
    write_tiny(tmp_path, vocab_size=VOCABULARY)
    kept, fresh = Kept(model_in(tmp_path)), model_in(tmp_path)
    runner = DraftRunner(kept, None, VOCABULARY)
    draft = DraftScheduler(
        kept.model.kv_cache, CONTEXT, 1, VOCABULARY, SendBuffer(lambda link, messages: None)
    )
    draft.sessions.link_up(LINK, np.ones(VOCABULARY, np.bool_))
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, VOCABULARY, 40).astype(np.int32)
    limits = Limits(1, depth=12, width=4, nodes_ahead=40, error_scale=1.0)
    draft.apply(LINK, Open(1, prompt, SamplingParams(), limits, len(prompt)), 0.0)
    (session,) = draft.sessions.live.values()
    tokens = prompt.tolist()
    compared = survived = 0
    for number in range(REROOTS):
        for _ in range(int(rng.integers(1, 5))):
            step = draft.next(0.0)
            if step is None:
                break
            (part,) = step.parts
            paths = [path_to(session.tree, int(leaf)) for leaf in part.leaves]
            outputs = runner.run(step)
            for path, logits in zip(paths, kept.logits, strict=True):
                expected = fresh_logits(fresh, tokens + path)
                np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
                compared += 1
            draft.settle(step, outputs, 0.0)
        more = committed(session, rng)
        if len(tokens) + len(more) >= CONTEXT:
            break
        draft.apply(LINK, Commit(1, len(tokens) - 1, np.array(more, np.int32)), float(number))
        tokens += more
        survived += len(session.tree) > 0
    assert number > REROOTS / 2
    assert compared > 2 * REROOTS
    assert survived > 5
