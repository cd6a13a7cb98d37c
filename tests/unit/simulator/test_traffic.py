import itertools
from pathlib import Path

import numpy as np
import pytest

from outrider.operator.spec.document import SpecError
from outrider.simulator.traces import Arrival, read_trace
from outrider.simulator.traffic import arrivals, lengths, prompt_of, shared_out
from outrider.simulator.traffic_description import (
    Arrivals,
    Lengths,
    Routing,
    Stress,
    TraceFormat,
    Traffic,
)
from tests.unit.simulator.simulations import DRAFT, TARGET, run, simulation

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:03.4799600,110,27
"""
MOONCAKE = """\
{"timestamp": 1000, "input_length": 1030, "output_length": 52, "hash_ids": [0, 1, 2]}
{"timestamp": 3500, "input_length": 600, "output_length": 9, "hash_ids": [0, 3]}
"""


def first(traffic: Traffic, count: int) -> list[Arrival]:
    return list(itertools.islice(arrivals(traffic, 5, Path()), count))


@pytest.mark.parametrize("kind", list(Arrivals))
def test_arrivals_come_at_the_rate_that_is_given(kind: Arrivals) -> None:
    found = first(Traffic(rate=4.0, arrivals=kind), 4000)
    assert found[-1].at == pytest.approx(1000, rel=0.05)
    assert all(a.at <= b.at for a, b in itertools.pairwise(found))


def test_a_stress_trace_has_its_requests_and_its_rates() -> None:
    found = first(Traffic(stress=Stress.SPIKE), 1000)
    assert len(found) == 30 + 40 + 80 + 120 + 40
    peak = found[150 + 119].at - found[150].at
    assert 119 / peak == pytest.approx(40, rel=0.3)


def test_lengths_have_the_mean_and_the_variation_that_are_given() -> None:
    distribution = Lengths(mean=200.0, variation=0.5)
    drawn = list(itertools.islice(lengths(distribution, np.random.default_rng(1)), 20_000))
    assert np.mean(drawn) == pytest.approx(200, rel=0.02)
    assert np.std(drawn) == pytest.approx(100, rel=0.03)
    assert min(drawn) >= 1


def test_lengths_as_they_were_measured_are_drawn_as_often_as_they_stand_there() -> None:
    distribution = Lengths(values=[10, 10, 10, 500], most=400)
    drawn = list(itertools.islice(lengths(distribution, np.random.default_rng(1)), 20_000))
    assert set(drawn) == {10, 400}  # cut, as all lengths are
    assert drawn.count(400) / len(drawn) == pytest.approx(0.25, rel=0.05)


def test_lengths_that_hardly_vary_are_equal() -> None:
    distribution = Lengths(mean=200.0, variation=1e-200)
    drawn = itertools.islice(lengths(distribution, np.random.default_rng(1)), 100)
    assert set(drawn) == {200}


def test_the_largest_stress_trace_can_be_made() -> None:
    (largest,) = (
        one.le for one in Traffic.model_fields["stress_scale"].metadata if hasattr(one, "le")
    )
    for stress in Stress:
        traffic = Traffic.model_validate({"stress": stress, "stressScale": largest})
        assert first(traffic, 1)


@pytest.mark.parametrize("routing", list(Routing))
def test_cells_share_out_every_request_of_the_fleet(routing: Routing) -> None:
    every = first(Traffic(rate=10.0), 500)
    cells = [
        list(shared_out(iter(every), routing, 6, range(at, at + 2), seed=5)) for at in (0, 2, 4)
    ]
    assert sorted((a.at for cell in cells for _, a in cell)) == [a.at for a in every]
    assert {target for target, _ in cells[1]} == {2, 3}


def test_azure_traces_are_read_by_their_columns(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text(AZURE)
    assert read_trace(file, TraceFormat.AZURE) == [
        Arrival(0.0, 110, 27),
        Arrival(pytest.approx(0.5), 4808, 10),
    ]
    file.write_text("GeneratedTokens,TIMESTAMP,ContextTokens\n7,2024-05-10 00:00:00+00:00,3\n")
    assert read_trace(file, TraceFormat.AZURE) == [Arrival(0.0, 3, 7)]


def test_prompts_of_a_mooncake_trace_share_their_blocks(tmp_path: Path) -> None:
    file = tmp_path / "mooncake.jsonl"
    file.write_text(MOONCAKE)
    one, other = read_trace(file, TraceFormat.MOONCAKE)
    assert (one.at, other.at, other.answer) == (0.0, 2.5, 9)
    prompts = [prompt_of(a, 0, n, 32_768, 5) for n, a in enumerate((one, other))]
    assert [len(prompt) for prompt in prompts] == [1030, 600]
    assert (prompts[0][:512] == prompts[1][:512]).all()
    assert (prompts[0][512:600] != prompts[1][512:]).any()
    target = TARGET.replace("maxContext: 512", "maxContext: 2048")
    trace = f"traffic: {{trace: {{file: {file}, format: Mooncake}}}}\n"
    found = run(simulation(target, DRAFT, trace))
    usages = [answer.message.usage for answer in found.clients.answers]
    assert [usage.cached_prompt_tokens for usage in usages] == [0, 512]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (TraceFormat.AZURE, AZURE.replace("ContextTokens", "Tokens"), "line 1: the column Context"),
        (TraceFormat.AZURE, AZURE.replace(",10", ",ten"), "line 2, GeneratedTokens: 'ten' is not"),
        (TraceFormat.AZURE, AZURE.replace("2023-11-16", "16.11."), "line 2, TIMESTAMP: '16.11."),
        (TraceFormat.AZURE, AZURE.replace(",10", ",10,1"), "line 2: 4 columns, and line 1 has 3"),
        (TraceFormat.AZURE, AZURE.replace(",10", ",²"), "line 2, GeneratedTokens: '²' is not"),
        (TraceFormat.AZURE, AZURE.replace(",10", "," + "9" * 5000), "line 2, GeneratedTokens: '99"),
        (TraceFormat.AZURE, AZURE.replace(",10", "," + "9" * 140_000), "line 2: not CSV: field la"),
        (TraceFormat.AZURE, AZURE.partition("2023")[0], "no requests"),
        (
            TraceFormat.MOONCAKE,
            MOONCAKE.replace("output_length", "output"),
            "line 1: the column output_length is missing; found timestamp, input_length, output, ",
        ),
        (TraceFormat.MOONCAKE, MOONCAKE.replace("600", "-6"), "line 2, input_length: -6 is not"),
        (TraceFormat.MOONCAKE, MOONCAKE.replace("[0, 3]", "[0.5]"), "line 2, hash_ids: [0.5] is"),
        (TraceFormat.MOONCAKE, MOONCAKE.replace("600", '"²"'), "line 2, input_length: '²' is not"),
        (TraceFormat.MOONCAKE, MOONCAKE.replace("600", "6" * 5000), "line 2: not JSON: Exceeds"),
        (TraceFormat.MOONCAKE, "[" * 100_000, "line 1: not JSON: maximum recursion"),
        (TraceFormat.MOONCAKE, AZURE, "line 1: not JSON"),
    ],
)
def test_a_wrong_trace_is_refused_by_line_and_column(
    tmp_path: Path, form: TraceFormat, text: str, message: str
) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_trace(file, form)
    assert message in str(caught.value)
