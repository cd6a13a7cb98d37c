"""Which policies a worker takes: newer ones, by steps that leave room for later ones."""

import pytest

from outrider.contract.settings import (
    MAX_POLICY_VERSION,
    MAX_VERSION_STEP,
    PolicySettings,
    SettingsError,
)
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.worker.errors import InvalidField, PolicySuperseded
from outrider.worker.server.control import is_newer
from outrider.worker.server.control_service import parse_policy

KNOWN = PolicySettings(version=7)


def sent(version: int, drafts: tuple[str, ...] = ()) -> pb.Policy:
    numbers = {"max_rows": 1, "depth": 1, "width": 1, "nodes_ahead": 1}
    return pb.Policy(version=version, drafts=drafts, **numbers)


def test_a_newer_one_is_taken_and_the_very_one_in_force_changes_nothing() -> None:
    assert is_newer(PolicySettings(version=8), KNOWN)
    assert not is_newer(PolicySettings(version=7), KNOWN)


@pytest.mark.parametrize("policy", [PolicySettings(version=6), PolicySettings(version=7, depth=3)])
def test_any_other_is_refused_with_the_newest_version(policy: PolicySettings) -> None:
    words = rf"policy\.version: {policy.version} is superseded; the newest is 7"
    with pytest.raises(PolicySuperseded, match=words):
        is_newer(policy, KNOWN)


def test_a_version_never_rises_so_far_that_later_ones_have_no_room() -> None:
    assert is_newer(PolicySettings(version=7 + MAX_VERSION_STEP), KNOWN)
    with pytest.raises(InvalidField, match=r"policy\.version: .* the newest is 7"):
        is_newer(PolicySettings(version=8 + MAX_VERSION_STEP), KNOWN)


def test_a_version_has_a_bound_of_its_own() -> None:
    assert parse_policy(sent(MAX_POLICY_VERSION)).version == MAX_POLICY_VERSION
    for version in (MAX_POLICY_VERSION + 1, (1 << 64) - 1):
        with pytest.raises(SettingsError, match=r"policy\.version"):
            parse_policy(sent(version))


@pytest.mark.parametrize("drafts", [("nope",), ("",), ("h:99999",), ("h:1", "h:1")])
def test_an_address_that_is_none_is_refused(drafts: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=r"policy\.drafts"):
        parse_policy(sent(1, drafts))
