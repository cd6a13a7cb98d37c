"""Where a client's calls go, by the addresses that it is given."""

import pytest

from outrider.client import InvalidRequest, Unavailable
from outrider.client.channel import OPTIONS, SPREAD, place


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", ["10.0.0.7:1"]])
def test_one_ip_address_is_asked_as_it_is(address: str | list[str]) -> None:
    where = place(address)
    assert where.options == OPTIONS
    assert where.uri in (address, "10.0.0.7:1")


def test_one_name_is_spread_and_left_to_grpc_to_look_up() -> None:
    where = place("targets.example:50051")
    assert (where.uri, where.options) == ("targets.example:50051", SPREAD)


@pytest.mark.parametrize(
    "addresses", ["127.0.0.1:1,127.0.0.2:3", ["127.0.0.1:1", " 127.0.0.2:3", "127.0.0.1:1"]]
)
def test_several_addresses_are_one_target_without_repeats(addresses: str | list[str]) -> None:
    where = place(addresses)
    assert (where.uri, where.options) == ("ipv4:127.0.0.1:1,127.0.0.2:3", SPREAD)


def test_addresses_of_both_families_are_written_as_ipv6() -> None:
    assert place("127.0.0.1:1,[::1]:3").uri == "ipv6:[::ffff:127.0.0.1]:1,[::1]:3"


def test_a_name_among_several_is_looked_up() -> None:
    assert "127.0.0.1" in place("localhost:1,127.0.0.2:3").uri


def test_a_name_that_is_not_known_is_left_out_of_several() -> None:
    assert place("not-there.invalid:1,127.0.0.2:3").uri == "ipv4:127.0.0.2:3"


def test_several_names_of_which_none_is_known_are_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"one\.invalid:1, two\.invalid:2"):
        place("one.invalid:1,two.invalid:2")


@pytest.mark.parametrize("wrong", ["127.0.0.1", ":1", "a:", "a:b", "a:0", "a:65536", "a:-1", ""])
def test_what_is_no_host_and_port_is_refused_by_its_value(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^address: '{wrong}' is not allowed"):
        place(["127.0.0.1:1", wrong])


def test_no_address_at_all_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no address was given"):
        place([])
