"""Authorities over years: what they sign, when they follow each other, whom they vouch for."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.operator.certificates.authority import (
    AUTHORITY_LIFE,
    LIFE,
    SETTLING,
    SKEW,
    Authorities,
    KeyPair,
)

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAME = "target.chat.default.outrider"


def test_a_certificate_is_good_for_its_name_until_two_thirds_of_its_life() -> None:
    mine = Authorities().renewed(START)
    pair = mine.issue((NAME,), START)
    assert mine.vouch(pair, (NAME,), START)
    assert not mine.vouch(pair, ("target.other.default.outrider",), START)
    assert mine.vouch(pair, (NAME,), START + LIFE * 2 / 3 - DAY)
    assert not mine.vouch(pair, (NAME,), START + LIFE * 2 / 3)


def test_only_whole_pairs_of_their_own_are_vouched_for() -> None:
    mine, theirs = Authorities().renewed(START), Authorities().renewed(START)
    pair, other = mine.issue((NAME,), START), mine.issue((NAME,), START)
    for wrong in (
        theirs.issue((NAME,), START),
        KeyPair(pair.certificate, other.key),
        KeyPair(b"", b""),
        KeyPair(pair.certificate, b"no key"),
        KeyPair(b"no certificate", pair.key),
        mine.pairs[0],
    ):
        assert not mine.vouch(wrong, (NAME,), START)


def test_an_authority_is_heard_of_before_it_signs_and_goes_when_it_ends() -> None:
    first = Authorities().renewed(START)
    assert first.renewed(START + DAY) == first
    due = START + AUTHORITY_LIFE * 2 / 3
    both = first.renewed(due)
    assert both.pairs[:-1] == first.pairs
    assert both.bundle == b"".join(pair.certificate for pair in both.pairs)
    assert both.signing(due) == first.pairs[0]
    old = both.issue((NAME,), due)
    assert both.signing(due + SETTLING + SKEW) == both.pairs[1]
    assert both.vouch(old, (NAME,), due + SETTLING)
    after = both.renewed(START + AUTHORITY_LIFE)
    assert after.pairs == both.pairs[1:]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 19), min_size=20, max_size=20))
def test_whoever_looks_often_enough_always_has_a_good_certificate(pauses: list[int]) -> None:
    """Pauses in tens of days for authorities; certificates are looked at each time."""
    now = START
    authorities = Authorities()
    for pause in pauses:
        before, authorities = authorities, authorities.renewed(now)
        signer = authorities.signing(now).parsed
        pair = authorities.issue((NAME,), now)
        assert signer.not_valid_before_utc <= now
        assert signer.not_valid_after_utc > now + LIFE
        known = before.pairs or authorities.pairs
        assert authorities.signing(now) in known, "nobody has heard of who signs"
        assert authorities.vouch(pair, (NAME,), now)
        now += 10 * pause * DAY


def test_what_is_stored_is_read_back_and_anything_else_is_refused() -> None:
    stored = Authorities().renewed(START).renewed(START + AUTHORITY_LIFE * 2 / 3)
    data = stored.to_data()
    assert Authorities.from_data(data) == stored
    for broken in (
        {},
        {"0.crt": data["0.crt"]},
        {**data, "0.key": data["1.key"]},
        {**data, "1.crt": b"?"},
    ):
        with pytest.raises(ValueError, match=r"missing|no certificate"):
            Authorities.from_data(broken)


def test_no_key_is_shown() -> None:
    authorities = Authorities().renewed(START)
    assert b"PRIVATE KEY" in authorities.pairs[0].key
    assert "PRIVATE" not in repr(authorities)
