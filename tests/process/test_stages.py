"""A target cut over real processes: the same text, and a group that ends and comes back as one."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from outrider.contract.process import ENV_LEADER, ENV_NODE, ENV_NODES
from outrider.contract.settings import StageDtype, StageLink
from outrider.contract.stages import StagePlace
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import StageLost
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.messages import Submit
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import prompt_rows
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.rank_spec import GROUP_LOST
from outrider.worker.sampling.params import SamplingParams
from tests.ports import free_port
from tests.process.stages import (
    ANSWER,
    StageWorker,
    leading,
    stage_settings,
    started_stages,
    until_closed,
)
from tests.process.workers import wait_until
from tests.tiny_models import write_tiny
from tests.unit.worker.parallel.rank_threads import shared_model

SEEDED = SamplingParams(temperature=0.75, top_k=40, seed=7)
PENALISED = SamplingParams(temperature=0.5, repetition_penalty=1.25, seed=3)
SAMPLINGS = {1: SamplingParams(), 2: SEEDED, 3: PENALISED}
LONG = 40.0
"""Seconds: more than noticing a lost stage takes on any machine; the goal is one."""
HELLO_BYTES = 300
"""More than Hello has, which its receiver does not count."""
SILENCE = 800
"""Milliseconds, the default: a stage that stops is noticed within a second."""


BOTH = pytest.mark.parametrize("link", list(StageLink))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("cut"), layers=5)


@pytest.fixture(scope="module")
def requests() -> dict[int, Submit]:
    random = np.random.default_rng(1)
    return {
        number: Submit(
            number,
            random.integers(0, 256, 20 + 10 * number).astype(np.int32),
            sampling,
            ANSWER,
            (),
            True,
            float(number),
        )
        for number, sampling in SAMPLINGS.items()
    }


@pytest.fixture(scope="module")
def truth(folder: Path, requests: dict[int, Submit]) -> dict[int, tuple[int, ...]]:
    """Prompt and answer of each request, of the model in one piece, token by token."""
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64)
    config, weights = load(prepared)
    kv_cache = HostKVCache(config.kv_shape, 4, 200)
    model = Llama(config, weights, NumericPath.FP32, kv_cache, 64)
    return {number: plain(model, request) for number, request in requests.items()}


@pytest.fixture(scope="module")
def truth_of_ranks(folder: Path, requests: dict[int, Submit]) -> dict[int, tuple[int, ...]]:
    """The same of the model over two ranks."""
    with shared_model(folder, 2) as model:
        return {number: plain(model, request) for number, request in requests.items()}


def plain(model: Llama | LeadingModel, request: Submit) -> tuple[int, ...]:
    from outrider.worker.sampling.logits_processor import LogitsProcessors

    vocabulary = 260
    table = model.kv_cache.admit(np.empty(0, np.int32), 190)
    assert table is not None
    processor = LogitsProcessors(vocabulary).start(request.sampling, request.prompt, "")
    tokens, text, fed = request.prompt, list(request.prompt), 0
    for _ in range(ANSWER):
        logits = model.forward(prompt_rows(tokens, fed, table, True))[:, :vocabulary]
        fed += len(tokens)
        if processor is not None:
            logits = processor.process(logits, np.zeros((1, 0), np.int32))
        sampled = Sampler(vocabulary).sample(logits, np.array([fed]), request.sampling)
        text.append(int(sampled[0]))
        tokens = sampled
        if processor is not None:
            processor.commit(sampled)
    model.kv_cache.free(table)
    return tuple(int(token) for token in text)


def answers(truth: dict[int, tuple[int, ...]]) -> dict[int, list[int]]:
    return {number: list(text[-ANSWER:]) for number, text in truth.items()}


@pytest.mark.parametrize(
    ("count", "cut", "link"),
    [
        (2, (), StageLink.GRPC),
        (3, (1, 3, 1), StageLink.GRPC),
        (3, (1, 3, 1), StageLink.DISTRIBUTED),
    ],
)
def test_stages_write_the_text_of_the_whole_model(
    folder: Path,
    tmp_path: Path,
    requests: dict[int, Submit],
    truth: dict[int, tuple[int, ...]],
    count: int,
    cut: tuple[int, ...],
    link: StageLink,
) -> None:
    with started_stages(folder, tmp_path, count, cut=cut, link=link) as stages:
        with leading(stages) as pipeline:
            pipeline.submit(requests, truth)
            pipeline.run()
            assert pipeline.texts == answers(truth)
            assert pipeline.fall_ins > 0  # how many is a matter of time
            states = [stage.client.state().stage for stage in stages]
            assert all(state is not None and state.in_group for state in states)
        check_states(stages, pipeline.client.sent_bytes)
        with leading(stages, dtype=StageDtype.BF16) as short:
            short.submit(requests, truth)
            short.run()
            assert all(len(text) == ANSWER for text in short.texts.values())


def test_stages_of_two_ranks_write_the_text_of_the_model_over_two_ranks(
    folder: Path,
    tmp_path: Path,
    requests: dict[int, Submit],
    truth_of_ranks: dict[int, tuple[int, ...]],
) -> None:
    with started_stages(folder, tmp_path, 2, tensor=2) as stages:
        with leading(stages) as pipeline:
            pipeline.submit(requests, truth_of_ranks)
            pipeline.run(until=30)
            (follower,) = followers(stages[1])
            os.kill(follower, signal.SIGKILL)
            with pytest.raises(StageLost, match="stage 1"):
                pipeline.run()
            assert stages[1].process.wait(LONG) == GROUP_LOST
            stages[1] = stages[1].restart(tmp_path)
            stages[1].until(lambda state: state.ready)
            pipeline.recover()
            pipeline.run()
            assert pipeline.texts == answers(truth_of_ranks)
        ranks = [rank for stage in stages for rank in followers(stage)]
        assert len(ranks) == 2
    wait_until(lambda: not any(map(runs, ranks)), LONG, "the ranks end with their stages")


def followers(stage: StageWorker) -> list[int]:
    """Process ids of the ranks that a stage has started."""
    tasks = Path(f"/proc/{stage.process.pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_ranks_of_a_stage_on_several_machines_are_refused(folder: Path, tmp_path: Path) -> None:
    settings = stage_settings(folder, tmp_path / "cache", 2, tensor=2)
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in range(2))
    variables = {ENV_NODES: "2", ENV_NODE: "0", ENV_LEADER: "127.0.0.1"}
    stage = StageWorker.start(settings, StagePlace(1, addresses), tmp_path, variables)
    assert stage.process.wait(120) == 2
    problem = f"{ENV_NODES}: 2 is not allowed where settings.pipeline.stages is more than 1"
    assert problem in stage.log.read_text()
    stage.client.close()


def check_states(stages: list[StageWorker], sent: int) -> None:
    """What stages say about themselves after a group, over Control and /metrics."""
    wait_until(
        lambda: not any(s.client.state().stage.in_group for s in stages),  # type: ignore[union-attr]
        LONG,
        "the group has ended everywhere",
    )
    states = [stage.client.state().stage for stage in stages]
    layers = 0
    for index, (stage, state) in enumerate(zip(stages, states, strict=True)):
        assert state is not None
        assert (state.index, state.stages, state.groups) == (index, len(stages), 1)
        assert state.first_layer == layers
        layers += state.layers
        assert state.rows >= 3 * ANSWER
        assert state.segments > 0
        assert state.busy_seconds > 0
        shown = metrics_of(stage, index)
        assert shown["outrider_stage_rows_total"] == state.rows
        assert shown["outrider_stage_up"] == 0
        assert shown["outrider_stage_received_bytes_total"] == state.received_bytes
        assert shown["outrider_stage_busy_seconds_total"] == state.busy_seconds
        assert httpx.get(f"{stage.url}/readyz").status_code == 200
    assert layers == 5
    first = states[0]
    assert first is not None
    assert first.received_bytes == pytest.approx(sent, abs=HELLO_BYTES)


def metrics_of(stage: StageWorker, index: int) -> dict[str, float]:
    """Values of one stage's own metrics, by name."""
    text = httpx.get(f"{stage.url}/metrics").text
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("stage") == str(index) and sample.labels["role"] == "target"
    }


@BOTH
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_stage_ends_the_group_and_a_new_one_goes_on(
    folder: Path,
    tmp_path: Path,
    requests: dict[int, Submit],
    truth: dict[int, tuple[int, ...]],
    victim: int,
    link: StageLink,
) -> None:
    with started_stages(folder, tmp_path, 2, link=link) as stages, leading(stages) as pipeline:
        pipeline.submit(requests, truth)
        pipeline.run(until=30)
        stages[victim].kill()
        with pytest.raises(StageLost, match=f"stage {victim}"):
            pipeline.run()
        other = stages[1 - victim]
        assert other.until(lambda state: state.stage is not None and not state.stage.in_group).ready
        stages[victim] = stages[victim].restart(tmp_path)
        stages[victim].until(lambda state: state.ready)
        pipeline.recover()
        pipeline.run()
        assert pipeline.texts == answers(truth)


@BOTH
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stopped_stage_is_given_up_by_all_and_comes_back(
    folder: Path,
    tmp_path: Path,
    requests: dict[int, Submit],
    truth: dict[int, tuple[int, ...]],
    victim: int,
    link: StageLink,
) -> None:
    with started_stages(folder, tmp_path, 3, link=link) as stages:
        with leading(stages, SILENCE) as pipeline:
            stages[victim].signal(signal.SIGSTOP)
            reason = until_closed(pipeline.client, LONG)
            assert re.match(r"stage [012] ", reason)  # silent, or ended for a stage that was
            for stage in stages[:victim] + stages[victim + 1 :]:
                stage.until(lambda state: state.stage is not None and not state.stage.in_group)
            stages[victim].signal(signal.SIGCONT)
        with leading(stages) as pipeline:
            pipeline.submit(requests, truth)
            pipeline.run()
            assert pipeline.texts == answers(truth)


def test_more_stages_than_layers_are_refused_with_both_numbers(
    folder: Path, tmp_path: Path
) -> None:
    settings = stage_settings(folder, tmp_path / "cache", 6)
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in range(6))
    stage = StageWorker.start(settings, StagePlace(0, addresses), tmp_path)
    assert stage.process.wait(120) == 2
    problem = "settings.pipeline.stages: 6 is not allowed; the model has 5 layers"
    assert problem in stage.log.read_text()
    stage.client.close()


def test_a_stage_needs_its_place(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "stage.json"
    file.write_text(stage_settings(folder, tmp_path / "cache", 2).to_json())
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "outrider.worker", "stage", "--settings", str(file)],
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert b"OUTRIDER_STAGES: missing" in ended.stderr
