"""Names of a server without API keys on loopback, so that no stranger's web page makes it compute.

Such a page may send requests to this machine, and may have its own name lead here (DNS rebinding).
Browsers say in `Origin` whose page asks, and in `Host` by which name they came. Leaves answering to
`middleware`, and bodies that a page sends without asking first to `request_body`.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from outrider.contract.addresses import ANY_HOST

LOCAL = "localhost"
WHY = (
    "without API keys this server answers to localhost, IP addresses, and what `--allow-host NAME` "
    "(settings.allowed_hosts) names"
)


def refusal(host: str, origin: str | None, allowed: Collection[str]) -> str:
    """Say what is wrong with the `Host` and `Origin` of a request; nothing: it may come in.

    `allowed` are names beside localhost and IP addresses; with `ANY_HOST` among them, all are.
    """
    if ANY_HOST in allowed:
        return ""
    name = _name(host)
    if host and not (_is_local(name) or _is_ip_address(name) or name in allowed):
        return f"host: {host!r:.64} is not allowed; {WHY}"
    if origin is None or _place(origin) == host.lower():
        return ""
    name = _name(_place(origin))
    if _is_local(name) or name in allowed:
        return ""
    return f"origin: {origin!r:.64} is not allowed; {WHY}"


def _is_local(name: str) -> bool:
    """True for a name that leads to this machine, whoever asks."""
    if name == LOCAL or name.endswith(f".{LOCAL}"):
        return True
    return _is_ip_address(name) and ipaddress.ip_address(name).is_loopback


def _is_ip_address(name: str) -> bool:
    """True for what nobody can have led elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _place(origin: str) -> str:
    """Return host or host:port of an origin; empty: it has none, as `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(place: str) -> str:
    """Return the host of host or host:port, without brackets and a last dot."""
    try:
        return (urlsplit(f"//{place}").hostname or "").removesuffix(".")
    except ValueError:
        return ""
