"""The environment of a stage is read back as it was written, and refused by its variable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.process import ENV_STAGE, ENV_STAGES
from outrider.contract.settings import SettingsError
from outrider.contract.stages import StagePlace

addresses = st.lists(
    st.builds("{}:{}".format, st.from_regex(r"[a-z0-9.-]+", fullmatch=True), st.integers(1, 65535)),
    min_size=1,
    max_size=8,
).map(tuple)
places = addresses.flatmap(
    lambda known: st.builds(StagePlace, st.integers(0, len(known) - 1), st.just(known))
)


@given(places)
def test_what_is_written_is_read_back(place: StagePlace) -> None:
    assert StagePlace.of(place.variables(), len(place.addresses)) == place


@given(places)
def test_records_pass_every_stage_once_and_results_go_to_the_first(place: StagePlace) -> None:
    seen = [StagePlace(0, place.addresses)]
    while not seen[-1].samples:
        seen.append(StagePlace(seen[-1].index + 1, place.addresses))
        assert seen[-2].next == seen[-1].address
    assert [one.address for one in seen] == list(place.addresses)
    assert [one.leads for one in seen] == [True] + [False] * (len(seen) - 1)
    assert seen[-1].next is None
    assert seen[-1].leader == seen[0].address


def test_a_process_that_is_told_nothing_starts_its_stages_itself() -> None:
    assert StagePlace.of({}, 2) is None


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({ENV_STAGES: "a:1"}, f"{ENV_STAGES}: 1 addresses .*settings.pipeline"),
        ({ENV_STAGES: "a:1,b"}, f"{ENV_STAGES}: 'b' is not host:port"),
        ({ENV_STAGES: "a:1,b:0"}, f"{ENV_STAGES}: 'b:0' is not host:port"),
        ({ENV_STAGES: "a:1,b:1"}, f"{ENV_STAGE}: '' .* 0 to 1"),
        ({ENV_STAGES: "a:1,b:1", ENV_STAGE: "2"}, f"{ENV_STAGE}: '2' is not allowed"),
        ({ENV_STAGES: "a:1,b:1", ENV_STAGE: "-1"}, f"{ENV_STAGE}: '-1' is not allowed"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=f"^{problem}"):
        StagePlace.of(variables, 2)
