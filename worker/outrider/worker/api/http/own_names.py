"""Names of a server without API keys on loopback, so that no stranger's web page makes it compute.

Such a page may send requests to this machine, and may have its own name lead here (DNS rebinding).
Browsers say in `Origin` whose page asks, and in `Host` by which name they came. What is allowed is
lower-case: hosts, and origins as `outrider.contract.addresses` has them. Leaves answering to
`middleware`, and bodies that a page sends without asking first to `request_body`.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from outrider.contract.addresses import ANY_HOST

LOCAL = "localhost"
DEFAULT_PORTS = {"http": 80, "https": 443}
"""Ports that browsers leave out of an origin."""
WHY = (
    "without API keys this server answers to localhost, IP addresses, and the hosts and origins "
    "that `--allow-host` (settings.allowed_hosts) names"
)


def refusal(host: str, origin: str | None, allowed: Collection[str]) -> str:
    """Say what is wrong with the `Host` and `Origin` of a request; nothing: it may come in.

    `allowed` are beside localhost and IP addresses; with `ANY_HOST` among them, all are.
    """
    if ANY_HOST in allowed:
        return ""
    name = _name(host)
    if host and not (_is_local(name) or _is_ip_address(name) or name in allowed):
        return f"host: {host!r:.128} is not allowed; {WHY}"
    if origin is None or _place(origin) == host.lower() or is_allowed(origin, allowed):
        return ""
    return f"origin: {origin!r:.128} is not allowed; {WHY}"


def is_allowed(origin: str, allowed: Collection[str]) -> bool:
    """True for an origin of this machine, and for one that is allowed itself, by its host or by its
    scheme."""
    name = _name(_place(origin))
    origin = origin.lower()
    scheme = origin.partition("://")[0]
    with_port = f"{origin}:{DEFAULT_PORTS.get(scheme)}"
    forms = (ANY_HOST, name, origin, with_port, f"{scheme}://{ANY_HOST}")
    return _is_local(name) or any(form in allowed for form in forms)


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
