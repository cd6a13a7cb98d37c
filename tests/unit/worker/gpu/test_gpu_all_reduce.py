"""The setting picks how ranks add up, and what cannot be is refused."""

import pytest
from safetensors.numpy import load_file

from outrider.contract.settings import AllReduceKind, Dtype
from outrider.kernels.gpu.all_reduce import Mailboxes, emulated
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.errors import ModelError
from outrider.worker.gpu.all_reduce import (
    FusedReduce,
    GatherReduce,
    OneShotReduce,
    all_reduce_of,
)
from outrider.worker.gpu.device_group import DeviceGroup
from outrider.worker.gpu.shard import PRECISIONS
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.launch.load import check_all_reduce
from tests.gpu_models import loaded, write

ROWS, HIDDEN = 24, 64
GATHER, ONE_SHOT, FUSED = AllReduceKind


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> DeviceWeights:
    folder = write(tmp_path_factory.mktemp("tiny"), layers=1, hidden=HIDDEN)
    config, tensors = read_config(folder), load_file(folder / "model.safetensors")
    return loaded(config, tensors, PRECISIONS[Dtype.FP32], 64, "cpu")


@pytest.mark.parametrize(
    ("kind", "expected", "least"),
    [(GATHER, GatherReduce, 0), (ONE_SHOT, OneShotReduce, 1536), (FUSED, FusedReduce, 1536)],
)
def test_ranks_add_up_as_the_setting_says(
    kind: AllReduceKind, expected: type, least: int, weights: DeviceWeights
) -> None:
    """And flag words have room for all rows: 24 of 64 numbers in float32."""
    asked: list[int] = []

    def mailboxes(words: int, group: DeviceGroup) -> Mailboxes:
        asked.append(words)
        return emulated(group.size, words, group.device)

    found = all_reduce_of(kind, DeviceGroup("cpu", 0, 2), weights, ROWS, mailboxes)
    assert type(found) is expected
    assert len(asked) == (kind is not GATHER)
    assert sum(asked) >= least


@pytest.mark.parametrize("kind", AllReduceKind)
def test_one_rank_adds_nothing_up(kind: AllReduceKind, weights: DeviceWeights) -> None:
    assert all_reduce_of(kind, DeviceGroup("cpu"), weights, ROWS) is None


@pytest.mark.parametrize(
    ("device", "nodes", "reason"),
    [
        (None, 1, "and the model runs on the CPU; allowed: gather"),
        ("cpu", 1, "and the model runs on the CPU; allowed: gather"),
        ("cuda:0", 2, "between the GPUs of one machine, and the ranks have 2; allowed: gather"),
    ],
)
def test_what_cannot_carry_flag_words_is_refused(
    device: str | None, nodes: int, reason: str
) -> None:
    check_all_reduce(GATHER, device, nodes)
    with pytest.raises(ModelError, match=rf"settings\.all_reduce: fused .* {reason}"):
        check_all_reduce(FUSED, device, nodes)


def test_gpus_of_one_machine_may_take_any() -> None:
    for kind in AllReduceKind:
        check_all_reduce(kind, "cuda:0", 1)
