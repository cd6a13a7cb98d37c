"""Listening sockets: which addresses reach them."""

import socket

import pytest

from outrider.contract.listening import listen

SECONDS = 10.0


def loopbacks() -> set[str]:
    """Return this machine's own loopback addresses; a container may have IPv4's alone."""
    found = set()
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        try:
            socket.create_server((host, 0), family=family).close()
        except OSError:
            continue
        found.add(host)
    return found


def reached(listener: socket.socket) -> set[str]:
    """Return the loopback addresses that reach a socket."""
    port, found = listener.getsockname()[1], set()
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, port), SECONDS).close()
        except OSError:
            continue
        found.add(host)
    return found


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_every_address_is_of_both_families(host: str) -> None:
    with listen(host, 0) as listener:
        assert reached(listener) == loopbacks()


@pytest.mark.parametrize("host", sorted(loopbacks()))
def test_one_address_is_that_alone(host: str) -> None:
    with listen(host, 0) as listener:
        assert reached(listener) == {host}


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_a_machine_without_ipv6_has_the_other(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen(host, 0) as listener:
        assert listener.family is socket.AF_INET
        assert reached(listener) == {"127.0.0.1"}


def test_a_port_that_is_taken_is_said() -> None:
    with listen("", 0) as first, pytest.raises(OSError, match="in use"):
        listen("", first.getsockname()[1])
