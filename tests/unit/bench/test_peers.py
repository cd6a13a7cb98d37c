"""What the bench of other engines makes of files and answers; nothing is measured here."""

from pathlib import Path

import numpy as np
import pytest

from bench.peers import END, OURS, Answer, Measured, all_ratios, figures
from bench.sides import peer_draft
from bench.sides.services import SERVICE
from outrider.cli.service.file import read_service
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.gguf_file import GgufModel
from outrider.worker.checkpoints.source import ModelSource
from outrider.worker.model.matrix import floats_of


def values_of(model: GgufModel) -> dict[str, np.ndarray]:
    return {name: floats_of(model.matrix(tensor)) for name, tensor in model.tensors().items()}


def test_the_draft_that_peers_read_is_the_demos(tmp_path: Path) -> None:
    peer_draft.write(tmp_path / "draft.gguf")
    written = GgufModel(tmp_path / "draft.gguf")
    found = values_of(written)
    spec = read_service(SERVICE).spec
    assert spec.draft is not None
    folder = ModelSource.parse(spec.draft.model.uri).resolve()
    config = read_config(folder)
    fields = written.config_fields()
    assert fields["num_hidden_layers"] == config.layers
    assert fields["rope_parameters"]["rope_theta"] == config.rope_theta
    target = GgufModel(ModelSource.parse(spec.target.model.uri).resolve())
    embedding = "model.embed_tokens.weight"
    lent = floats_of(target.matrix(target.tensors()[embedding]))
    np.testing.assert_array_equal(found.pop(embedding), lent)
    own = dict(peer_draft.checkpoint(folder))
    assert found.keys() == own.keys()
    for name, value in own.items():
        # eight bits for each 32 values, of values that are eight bits themselves
        np.testing.assert_allclose(found[name], value, atol=np.abs(value).max() / 200)


def test_figures_are_over_the_engines_own_plain_decoding_and_over_outriders() -> None:
    def measured(seconds: float, *ids: int) -> Measured:
        one = Measured()
        one.add(Answer(10, seconds, list(ids)))
        return one

    found = figures(
        {
            OURS: {"plain": measured(1.0, 5, 6, END), "draft": measured(0.5, 5, 6)},
            "other": {"plain": measured(2.0, 5, 7), "lookup": measured(1.0, 5, 8)},
        }
    )
    assert found[OURS]["draft"] == {
        "tokens_per_second": 20,
        "over_own_plain": 2,
        "over_plain": 2,
        "same": 1,
    }
    assert found["other"]["lookup"] == {
        "tokens_per_second": 10,
        "over_own_plain": 2,
        "over_plain": 1,
        "same": 0,
    }
    assert all_ratios({"chats": found})["other_plain_over_plain_chats"] == pytest.approx(0.5)
