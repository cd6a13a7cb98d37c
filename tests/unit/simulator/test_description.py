from pathlib import Path

import pytest

from outrider.contract.settings import Role
from outrider.operator.spec.document import SpecError
from outrider.simulator.costs import pass_times
from outrider.simulator.description import parse_simulation, read_simulation
from tests.unit.simulator.simulations import DRAFT, TARGET, TRAFFIC, simulation

EXAMPLES = Path(__file__).parents[3] / "examples" / "simulate"
WHOLE = TARGET + DRAFT + TRAFFIC


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_can_be_read(file: Path) -> None:
    read = read_simulation(file)
    assert pass_times(read.target, Role.TARGET, EXAMPLES).costs.rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TARGET, "traffic: missing"),
        (TRAFFIC, "target: missing"),
        (WHOLE + "sedd: 1", "sedd: unknown key; allowed: the keys seed, seconds,"),
        (WHOLE.replace("maxRunning: 8", "maxRunning: 0"), "target.maxRunning: 0 is not allowed; "),
        (WHOLE.replace("rate: 4", "rate: 4\n  concurrency: 2"), "traffic: rate and concurrency is"),
        (WHOLE.replace("  rate: 4\n", ""), "traffic: none is not allowed; allowed: one of rate,"),
        (WHOLE.replace("[1, 16, 128]", "[1, 128, 16]"), "target.costs.rows: [1, 128, 16] is not"),
        (WHOLE.replace("[10, 12, 40]", "[10, 12]"), "target.costs.milliseconds: 2 numbers are"),
        (WHOLE.replace("rows: [1, 32],", ""), "draft.costs.milliseconds: 2 numbers are not"),
        (
            WHOLE.replace("rows: [1, 16, 128]", "profile: x.json, rows: [1, 16, 128]"),
            "target.costs: allowed: either profile, or rows and milliseconds",
        ),
        (
            WHOLE.replace("promptTokens: {", "promptTokens: {values: [5], "),
            "traffic.promptTokens: allowed: either mean, or values",
        ),
        (
            WHOLE.replace(
                "promptTokens: {mean: 60, variation: 0.5, most: 200}",
                "promptTokens: {values: [5], variation: 1}",
            ),
            "traffic.promptTokens.variation: not allowed beside values",
        ),
        (
            WHOLE + "pair: {hitRate: 1.5}",
            "pair.hitRate: 1.5 is not allowed; allowed: a number from",
        ),
        (
            WHOLE + "pair: {hitRate: 0.2, second: 0.6}",
            "pair.hitRate: a hit rate of 0.2 cannot be had with a second of 0.6; allowed: a higher",
        ),
        (
            WHOLE.replace("draft:", "draft:\n  minReplicas: 2"),
            "draft.minReplicas: 2 is not allowed; allowed: at most replicas, 1",
        ),
        (
            WHOLE + "sample: {targets: 1, cells: 2}",
            "sample: 2 cells of 1 targets are not allowed; allowed: target.replicas, 1, in all",
        ),
        (
            WHOLE.replace("target:", "target:\n  replicas: 8").replace(
                "draft:", "draft:\n  replicas: 2"
            )
            + "sample: {targets: 2}",
            "sample.targets: 2 is not allowed; a cell would have 0.5 of the 2 drafts of "
            "draft.replicas; allowed: multiples of 4",
        ),
        (WHOLE + "speculation: {maxRows: 99}", "speculation.maxRows: 99 is not allowed; allowed: "),
        (
            TARGET + "traffic: {stages: []}",
            "traffic.stages: [] is not allowed; allowed: a list of 1 to 1000, each the keys",
        ),
        (WHOLE + "traffic: {rate: 1}", "the key 'traffic' is there twice"),
        (
            TARGET + "traffic: {trace: {file: x, format: Burst}}",
            "traffic.trace.format: 'Burst' is not allowed; allowed: Azure or Mooncake",
        ),
    ],
)
def test_what_is_not_allowed_is_refused_by_its_path(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_simulation(text)
    assert message in str(caught.value)


def test_a_profile_gives_the_costs_of_its_role_and_threads(tmp_path: Path) -> None:
    table = (
        '{"rows": [1, 8], "contexts": [256, 1024], "batches": [1], "prefill_share": 0.8, '
        '"seconds": [[[0.004, 0.006], [0.005, 0.007]]]}'
    )
    text = f'{{"target": {{"1": {{"step_costs": {table}}}}}}}'
    (tmp_path / "costs.json").write_text(text)
    described = simulation(
        TARGET.replace("rows: [1, 16, 128], milliseconds: [10, 12, 40]", "profile: costs.json"),
        TRAFFIC,
    )
    costs = pass_times(described.target, Role.TARGET, tmp_path).costs
    assert costs.seconds(8, 256) == pytest.approx(0.006)
    with pytest.raises(SpecError, match="holds no step costs of a draft"):
        pass_times(described.target, Role.DRAFT, tmp_path)
    with pytest.raises(SpecError, match=r"costs\.json: No such file"):
        pass_times(described.target, Role.TARGET, tmp_path / "elsewhere")
