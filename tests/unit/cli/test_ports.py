"""Where a worker listens, and where it is reached."""

import socket

import pytest

from outrider.cli.failures import BadInput
from outrider.cli.local.workers import further_ports
from outrider.cli.machine.ports import HOST, Port, WantedPorts, checked_host, refuse_taken
from outrider.contract.settings import Role


@pytest.mark.parametrize(
    ("host", "listens", "reached", "on_loopback"),
    [
        ("127.0.0.1", "127.0.0.1:7", "127.0.0.1:7", True),
        ("0.0.0.0", "0.0.0.0:7", "127.0.0.1:7", False),
        ("10.1.2.3", "10.1.2.3:7", "10.1.2.3:7", False),
        ("::", "[::]:7", "[::1]:7", False),
        ("::1", "[::1]:7", "[::1]:7", True),
    ],
)
def test_a_port_is_reached_from_here_wherever_it_listens(
    host: str, listens: str, reached: str, on_loopback: bool
) -> None:
    wanted = WantedPorts(host=host)
    port = Port(7, "--port", wanted)
    assert (port.listen, port.address, wanted.on_loopback) == (listens, reached, on_loopback)


def test_a_host_is_an_ip_address() -> None:
    hosts = [checked_host(text) for text in (None, "localhost", "0.0.0.0", "[::1]")]
    assert hosts == [HOST, HOST, "0.0.0.0", "::1"]
    with pytest.raises(BadInput, match=r"^--host 'example.com' is not allowed; allowed: an IP"):
        checked_host("example.com")


def test_an_address_that_this_machine_has_not_is_named() -> None:
    with pytest.raises(BadInput, match=r"^--host 192\.0\.2\.1: .*; allowed: an address of this"):
        refuse_taken(WantedPorts(7, host="192.0.2.1"))  # RFC 5737: nobody's


def test_a_taken_port_is_named_with_the_address_at_which_it_is_taken() -> None:
    with socket.create_server(("127.0.0.2", 0)) as occupied:
        port = occupied.getsockname()[1]
        with pytest.raises(BadInput, match=rf"^127\.0\.0\.2:{port} is in use; .*--grpc-port"):
            refuse_taken(WantedPorts(port, host="127.0.0.2"))


def test_drafts_stay_on_loopback_and_targets_take_any_port() -> None:
    wanted = WantedPorts(7, 8, host="10.1.2.3", page=True)
    assert further_ports(wanted, Role.TARGET) == wanted._replace(grpc=0, http=0)
    inside = wanted._replace(grpc=0, http=0, host=HOST, page=False)
    assert further_ports(wanted, Role.DRAFT) == inside
