"""Credentials of calls to a target: one of its API keys, and what its certificate is checked with.

Leaves to the target whom it lets in.
"""

import contextlib
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from grpc import aio

from outrider.cli.failures import BadInput
from outrider.cli.machine.ports import HOST, HOST_OPTION, WantedPorts
from outrider.cli.terminal.text import read_text
from outrider.client import AsyncClient, Client
from outrider.client.channel import Options, Tls, credentials, name_option, open_channel, place
from outrider.contract.files import api_keys

HANDSHAKE_ROUNDS = 3
"""Flights of a handshake of TLS 1.2, which takes more of them than 1.3."""
KINDS = ("DNS", "IP Address")
"""Kinds of names that a server can have."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The server's own certificate of a file."""

    pem: bytes
    """The server's certificate only, without those of its issuers."""
    names: tuple[str, ...]
    """DNS names and IP addresses that it holds for, as it lists them; else its common name."""

    @classmethod
    def read(cls, file: str, key: str) -> "Certificate":
        """From PEM files; raises `ssl.SSLError` or `OSError` for what no client could accept."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(file, key, password=_refuse)
        shown = _shown(server, file)
        pem = ssl.DER_cert_to_PEM_cert(shown.getpeercert(binary_form=True) or b"")
        return cls(pem.encode(), _names(shown.getpeercert() or {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAccess:
    """Credentials for one target, or for several that want the same."""

    api_key: str | None = None
    tls: Tls = False
    """True trusts the system's roots, bytes are the PEM certificates to trust."""
    tls_name: str | None = None
    """The name that the certificate must hold; None: the address's host."""

    @property
    def scheme(self) -> str:
        """Scheme of HTTP addresses."""
        return "http" if self.tls is False else "https"

    def client(self, address: str | Sequence[str], timeout: float | None = None) -> AsyncClient:
        """A client that brings all that; see `AsyncClient`."""
        return AsyncClient(
            address, timeout=timeout, api_key=self.api_key, tls=self.tls, tls_name=self.tls_name
        )

    def blocking_client(self, address: str) -> Client:
        """A client for a program without an event loop."""
        return Client(address, api_key=self.api_key, tls=self.tls, tls_name=self.tls_name)

    def channel(self, address: str, options: Options) -> aio.Channel:
        """A channel for what needs no key."""
        name = name_option(place(address), self.tls, self.tls_name)
        channel: aio.Channel = open_channel(aio, address, (*options, *name), credentials(self.tls))
        return channel


SYSTEM = "system"
"""Value of --tls-ca for the system's roots."""
OPEN = TargetAccess()
"""To targets that want nothing, and to drafts."""


class GuardFiles(Protocol):
    """Files that a target is told of: settings or options."""

    @property
    def api_keys_file(self) -> str | None: ...
    @property
    def tls_cert(self) -> str | None: ...
    @property
    def tls_key(self) -> str | None: ...


def access_to(guard: GuardFiles) -> TargetAccess:
    """Return the access to a target that serves with these files, as they are now; raises
    `BadInput`.

    What is trusted is the certificate itself. Its first name is checked, whatever the address is:
    one on loopback is seldom in it.
    """
    key = None if guard.api_keys_file is None else _first_key(guard.api_keys_file)
    certificate = _certificate(guard.tls_cert, guard.tls_key)
    if certificate is None:
        return TargetAccess(api_key=key)
    return TargetAccess(api_key=key, tls=certificate.pem, tls_name=certificate.names[0])


def refuse_open(ports: WantedPorts, guard: GuardFiles) -> None:
    """Raise `BadInput` for an address that strangers reach, without keys and a certificate."""
    if ports.on_loopback:
        return
    files = {"--api-keys": guard.api_keys_file, "--tls-cert": guard.tls_cert}
    files["--tls-key"] = guard.tls_key
    if missing := [f"{option} FILE" for option, file in files.items() if file is None]:
        raise BadInput(
            f"{HOST_OPTION} {ports.host}: other machines reach it, so it needs "
            f"{', '.join(missing)}; without them, allowed: {HOST}"
        )


def current_access(access: TargetAccess, guard: GuardFiles) -> TargetAccess:
    """Return the access that the files give now: targets read them again. As it was, where they
    cannot be read."""
    try:
        return access_to(guard)
    except BadInput:
        return access


def key_from(variable: str | None) -> str | None:
    """The key in the environment variable of --api-key-env; raises `BadInput`."""
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    if not key:
        raise BadInput(
            f"--api-key-env {variable}: this environment variable is not set or empty; "
            "allowed: the name of one that holds the key"
        )
    if not _can_be_sent(key):
        raise BadInput(f"--api-key-env {variable}: allowed: a key of printable ASCII characters")
    return key


def access_from(variable: str | None, trusted: str | None, name: str | None) -> TargetAccess:
    """Return the access that --api-key-env, --tls-ca and --tls-name describe; raises `BadInput`."""
    if name is not None and trusted is None:
        raise BadInput(f"--tls-name {name} needs --tls-ca FILE or --tls-ca {SYSTEM}.")
    checked: Tls = trusted == SYSTEM
    if trusted is not None and trusted != SYSTEM:
        checked = roots(Path(trusted))
    return TargetAccess(api_key=key_from(variable), tls=checked, tls_name=name)


def roots(file: Path) -> bytes:
    """The PEM certificates in the file of --tls-ca; raises `BadInput`."""
    pem = _text("--tls-ca", str(file), "a PEM file of certificates")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError as error:
        why = _words(error)
        raise BadInput(f"--tls-ca {file}: {why}; allowed: a PEM file of certificates") from None
    return pem.encode()


def _first_key(file: str) -> str:
    keys = api_keys(_text("--api-keys", file, "a file with one key a line"))
    if not keys:
        raise BadInput(f"--api-keys {file}: it holds no key; allowed: a file with one key a line")
    for number, key in enumerate(keys, 1):
        if not _can_be_sent(key):
            raise BadInput(
                f"--api-keys {file}: key {number} has characters that no header can hold; "
                "allowed: printable ASCII characters"
            )
    return keys[0]


def _certificate(file: str | None, key: str | None) -> Certificate | None:
    if file is None and key is None:
        return None
    if file is None or key is None:
        given, other = (
            (f"--tls-key {key}", "--tls-cert")
            if file is None
            else (f"--tls-cert {file}", "--tls-key")
        )
        raise BadInput(f"{given} needs {other} FILE; allowed: both or neither")
    _text("--tls-cert", file, "a PEM file of certificates")
    _text("--tls-key", key, "a PEM file of a private key")
    try:
        certificate = Certificate.read(file, key)
    except (ssl.SSLError, OSError) as error:
        raise _no_pair(file, key, _words(error)) from None
    if not certificate.names:
        raise _no_pair(file, key, "the certificate holds no name")
    return certificate


def _no_pair(file: str, key: str, why: str) -> BadInput:
    return BadInput(
        f"--tls-cert {file}, --tls-key {key}: {why}; allowed: PEM files of a valid certificate "
        "with a name, and of its private key without a passphrase"
    )


def _text(option: str, file: str, allowed: str) -> str:
    try:
        return read_text(Path(file))
    except BadInput as error:
        raise BadInput(f"{option} {error}; allowed: {allowed}") from None


def _words(error: Exception) -> str:
    """The reason that is fit for people, where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "strerror", None) or str(error)


def _can_be_sent(key: str) -> bool:
    return key.isascii() and key.isprintable()


def _shown(server: ssl.SSLContext, file: str) -> ssl.SSLObject:
    """The client's end of a handshake, in memory, with a server that shows this certificate.

    `ssl` shows the names of a certificate only to a client that has checked it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # no issuer is needed to trust it
    client.load_verify_locations(file)
    down, up = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(HANDSHAKE_ROUNDS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0]


def _names(shown: Any) -> tuple[str, ...]:
    listed = tuple(name for kind, name in shown.get("subjectAltName", ()) if kind in KINDS)
    subject = (pair for part in shown.get("subject", ()) for pair in part)
    return listed or tuple(name for kind, name in subject if kind == "commonName")


def _refuse() -> str:
    """Instead of a question at the terminal; servers have no terminal."""
    raise ssl.SSLError(0, "the private key is encrypted")
