"""A settings file is read back as it was written, and refused by the name of what is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import (
    Dtype,
    ModelSettings,
    PolicySettings,
    Role,
    SettingsError,
    WorkerSettings,
)

counts = st.integers(0, 2**31)
models = st.builds(
    ModelSettings,
    uri=st.text(),
    embeddings_from=st.none() | st.text(),
    dtype=st.sampled_from(Dtype),
)
policies = st.builds(
    PolicySettings,
    version=counts,
    speculate=st.booleans(),
    max_rows=counts,
    drafts=st.lists(st.text()).map(tuple),
)
settings = st.builds(
    WorkerSettings,
    role=st.just(Role.TARGET),
    name=st.text(),
    model=models,
    threads=st.integers(1, 512),
    max_context=st.none() | st.integers(2, 2**20),
    policy=policies,
    colocated=st.none() | models,
    cache=st.none() | st.text(),
)
SMALLEST: dict[str, Any] = {"role": "draft", "name": "m", "model": {"uri": "file:///m"}}


@given(settings)
def test_a_written_file_is_read_back_equal(written: WorkerSettings) -> None:
    assert WorkerSettings.from_json(written.to_json()) == written


def test_what_is_left_out_takes_its_default() -> None:
    read = WorkerSettings.from_json(json.dumps(SMALLEST))
    expected = WorkerSettings(role=Role.DRAFT, name="m", model=ModelSettings(uri="file:///m"))
    assert read == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thread": 2}, "settings.thread: unknown key; allowed: role, name, model"),
        ({"role": "judge"}, "settings.role: 'judge' is not one of target, draft"),
        ({"role": ["draft"]}, r"settings.role: \['draft'\] is not one of target, draft"),
        ({"model": {}}, "settings.model.uri: missing"),
        ({"model": "file:///m"}, "settings.model: expected an object, got 'file:///m'"),
        ({"model": {"uri": 7}}, "settings.model.uri: expected str, got 7"),
        ({"model": {"uri": "u", "dtype": "fp8"}}, "settings.model.dtype: 'fp8' is not one of"),
        ({"threads": "2"}, "settings.threads: expected int, got '2'"),
        ({"threads": True}, "settings.threads: expected int, got True"),
        ({"threads": 1.5}, "settings.threads: expected int, got 1.5"),
        ({"threads": 0}, "settings.threads: 0 is not allowed; it must be 1 or more"),
        ({"max_context": 1}, "settings.max_context: 1 is not allowed; it must be 2 or more"),
        ({"policy": {"depth": -1}}, "settings.policy.depth: -1 is not allowed"),
        ({"policy": {"drafts": "a:1"}}, "settings.policy.drafts: expected a list, got 'a:1'"),
        ({"policy": {"drafts": ["a:1", 2]}}, r"settings.policy.drafts\[1\]: expected str, got 2"),
        ({"colocated": {"uri": "u"}}, "settings.colocated: only a target can hold a draft"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}"):
        WorkerSettings.from_json(json.dumps(SMALLEST | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        WorkerSettings.from_json(text)
