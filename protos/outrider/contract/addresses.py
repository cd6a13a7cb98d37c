"""Addresses of workers: host and port in one text, what is wrong with a list of them; hosts, and
origins of web pages."""

import ipaddress
import re
from collections.abc import Sequence

MAX_DRAFTS = 1024
"""Most drafts that a target pairs with."""
_ADDRESS = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,64}(?:%[A-Za-z0-9._-]{1,64})?\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})"
)
_LAST_PORT = (1 << 16) - 1
ANY_HOST = "*"
"""Stands for every name of a host."""
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,62})://(.+)")
_WEB = ("http", "https")
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")


def is_address(text: str) -> bool:
    """Return True for host:port with a name, an IPv4 address, or an IPv6 address in brackets."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) <= _LAST_PORT


def is_host(text: str) -> bool:
    """Return True for a host's name or IP address, without a port or brackets, and `ANY_HOST`."""
    named = len(text) <= 253 and _HOST.fullmatch(text) is not None
    return named or text == ANY_HOST or ip_address(text) is not None


def is_origin(text: str) -> bool:
    """Return True for SCHEME://HOST or SCHEME://HOST:PORT, and for SCHEME://* but of http and
    https."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return False
    scheme, place = found.groups()
    if place == ANY_HOST:
        return scheme.lower() not in _WEB
    return is_address(place) or is_address(f"{place}:1")


def allowed_host_problem(text: str) -> str | None:
    """Return what is wrong with a host or an origin that is to be let in; None: nothing."""
    if text == "null":
        return "'null' is not allowed; anybody's page can have it: serve yours from localhost"
    if is_host(text) or is_origin(text):
        return None
    return (
        f"{text[:64]!r} is not allowed; it must be the name of a host or its IP address, without a "
        "port; an origin, without a path (app://obsidian.md, https://chat.example.com:8443); all "
        "of a scheme but http and https (vscode-webview://*); or *"
    )


def is_loopback(address: str) -> bool:
    """Return True if only this machine, or this pod, can reach host:port, as its text says."""
    host = host_of(address)
    found = ip_address(host)
    return host == "localhost" if found is None else found.is_loopback


def host_of(address: str) -> str:
    """Return the host of host:port, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def address_problem(addresses: Sequence[str]) -> str | None:
    """Return what is wrong with the addresses of drafts; None: nothing."""
    if len(addresses) > MAX_DRAFTS:
        return f"{len(addresses)} addresses are not allowed; at most {MAX_DRAFTS}"
    wrong = next((one for one in addresses if not is_address(one)), None)
    if wrong is not None:
        return f"{wrong[:64]!r} is not allowed; it must be host:port, the port 1 to {_LAST_PORT}"
    if len(set(addresses)) < len(addresses):
        twice = next(one for one in addresses if addresses.count(one) > 1)
        return f"{twice!r} is there twice"
    return None
