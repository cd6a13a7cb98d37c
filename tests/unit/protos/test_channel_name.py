"""Which name a client wants in the certificate of its server."""

import pytest

from outrider.client import InvalidRequest
from outrider.client.channel import Tls, name_option, place


@pytest.mark.parametrize("tls", [True, b"roots"])
@pytest.mark.parametrize(
    ("address", "given", "name"),
    [
        ("a.example:1", None, None),
        ("127.0.0.1:1", None, None),
        ("127.0.0.1:1", "a.example", "a.example"),
        ("127.0.0.1:1,127.0.0.1:2", None, "127.0.0.1"),
        ("[::1]:1,[::1]:2", None, "::1"),
        ("localhost:1,localhost:2", None, "localhost"),
        ("127.0.0.1:1,127.0.0.2:1", "a.example", "a.example"),
    ],
)
def test_one_host_is_checked_by_its_name_unless_another_is_given(
    tls: Tls, address: str, given: str | None, name: str | None
) -> None:
    options = dict(name_option(place(address), tls, given))
    assert options.get("grpc.ssl_target_name_override") == name


def test_several_hosts_need_a_name() -> None:
    with pytest.raises(InvalidRequest, match=r"127\.0\.0\.1, 127\.0\.0\.2.* need tls_name"):
        name_option(place("127.0.0.1:1,127.0.0.2:1"), True, None)


def test_a_name_without_tls_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="tls_name: 'a' is not allowed without tls"):
        name_option(place("127.0.0.1:1"), False, "a")


def test_nothing_is_checked_without_tls() -> None:
    assert name_option(place("127.0.0.1:1,127.0.0.2:1"), False, None) == ()
