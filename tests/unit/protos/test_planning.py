"""Static tables: every number of running requests stands in one entry, or the table is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.planning import (
    MAX_TABLE_ROWS,
    PlannerKind,
    TableEntry,
    table_problems,
)
from outrider.contract.settings import (
    ModelSettings,
    PipelineSettings,
    PolicySettings,
    Role,
    SettingsError,
    WorkerSettings,
)

Spans = list[tuple[int, int]]


def entries(spans: Spans) -> list[TableEntry]:
    return [TableEntry(first=first, last=last, draft_tokens=1) for first, last in spans]


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([], ": no entry: every number of running requests from 1 on needs one"),
        ([(2, 0)], "[0].first: 1 running has no entry"),
        ([(1, 4), (7, 0)], "[1].first: 5 to 6 running has no entry"),
        ([(1, 4), (4, 0)], "[1].first: 4 running has two entries; 5 is next"),
        ([(1, 4), (5, 8)], "[1].last: leave it out: more than 8 running has no entry"),
        ([(1, 0), (5, 0)], "[0].last: missing; only the last entry has no bound"),
        ([(1, 2), (3, 1), (4, 0)], "[1].last: 1 is less than first, 3"),
        ([(0, 0)], "[0].first: 0 is not allowed; it must be 1 or more"),
    ],
)
def test_what_is_wrong_with_a_table_names_the_entry_and_the_number(
    spans: Spans, problem: str
) -> None:
    assert problem in list(table_problems(entries(spans)))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=4))
def test_a_table_is_right_where_each_number_has_one_entry(spans: Spans) -> None:
    """An entry without a bound that is not the last is refused although it might overlap none."""

    def holding(number: int) -> int:
        return sum(first <= number and (last == 0 or number <= last) for first, last in spans)

    forwards = all(last == 0 or first <= last for first, last in spans)
    in_order = sorted(spans) == spans and all(last for _, last in spans[:-1])
    right = in_order and forwards and all(holding(number) == 1 for number in range(1, 12))
    assert (not any(table_problems(entries(spans)))) == (right and holding(0) == 0)


def test_a_policy_names_what_is_wrong_with_its_table() -> None:
    text = PolicySettings(
        planner=PlannerKind.STATIC, static_table=tuple(entries([(1, 4), (6, 0)]))
    ).to_json()
    with pytest.raises(SettingsError, match=r"^policy\.static_table\[1\]\.first: 5 running has no"):
        PolicySettings.from_json(text)


def test_a_table_goes_with_the_static_planner_alone() -> None:
    with pytest.raises(SettingsError, match=r"static_table.* static.* bandit"):
        PolicySettings(planner=PlannerKind.BANDIT, static_table=tuple(entries([(1, 0)]))).check(
            "policy"
        )
    with pytest.raises(SettingsError, match="no entry"):
        PolicySettings(planner=PlannerKind.STATIC).check("policy")


def test_a_table_has_so_many_entries_and_tokens_at_most() -> None:
    many = [(number, number) for number in range(1, MAX_TABLE_ROWS + 1)] + [(MAX_TABLE_ROWS + 1, 0)]
    with pytest.raises(SettingsError, match=r"33 entries .*at most 32"):
        PolicySettings(planner=PlannerKind.STATIC, static_table=tuple(entries(many))).check("p")
    deep = (TableEntry(first=1, draft_tokens=65),)
    with pytest.raises(SettingsError, match=r"draft_tokens: 65 .* 0 to 64"):
        PolicySettings(planner=PlannerKind.STATIC, static_table=deep).check("p")


def test_a_policy_with_a_table_is_read_back_equal() -> None:
    policy = PolicySettings(
        planner=PlannerKind.STATIC, static_table=tuple(entries([(1, 4), (5, 0)]))
    )
    assert PolicySettings.from_json(policy.to_json()) == policy


def test_a_target_of_several_stages_plans_no_whole_passes() -> None:
    with pytest.raises(SettingsError, match="bandit plans whole passes"):
        WorkerSettings(
            role=Role.TARGET,
            name="tiny",
            model=ModelSettings(uri="file:///tiny"),
            pipeline=PipelineSettings(stages=2),
            policy=PolicySettings(planner=PlannerKind.BANDIT),
        )
