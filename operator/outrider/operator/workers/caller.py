"""The operator's own certificate, by which workers know who calls their `Control`.

Issued by itself and kept in memory alone, or, where cert-manager signs, read from a folder.
"""

import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outrider.client.channel import ClientCertificate
from outrider.contract.settings import AUTHORITIES, CERTIFICATE, KEY
from outrider.operator.certificates.authority import Authorities, KeyPair
from outrider.operator.naming import OPERATOR_IDENTITY

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call to a worker is made with."""

    own: ClientCertificate
    trusted: bytes
    """Certificates of the authorities, in PEM."""


class OwnCaller:
    """Issues the operator's certificate, anew before it ends or its authority is no more."""

    def __init__(
        self, authorities: Callable[[], Authorities], clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._authorities = authorities
        self._clock = clock
        self._pair: KeyPair | None = None

    def credentials(self) -> Credentials:
        """Return what counts now."""
        authorities = self._authorities()
        now = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)
        if self._pair is None or not authorities.vouch(self._pair, (OPERATOR_IDENTITY,), now):
            self._pair = authorities.issue((OPERATOR_IDENTITY,), now)
        own = ClientCertificate(self._pair.certificate, self._pair.key)
        return Credentials(own, authorities.bundle)


class MountedCaller:
    """Reads the operator's certificate from files, again whenever they are others."""

    def __init__(self, folder: Path) -> None:
        """Read `tls.crt`, `tls.key` and `ca.crt`; raises `OSError`."""
        self._folder = folder
        self._written = self._look()
        self._known = self._read()

    def credentials(self) -> Credentials:
        """Return what the files hold now, or held when they could be read last."""
        try:
            written = self._look()
            if written != self._written:
                self._known, self._written = self._read(), written
        except OSError as error:
            log.warning("the operator's certificate stays as it is: %s", error)
        return self._known

    def _look(self) -> tuple[int, int]:
        found = (self._folder / CERTIFICATE).stat()  # replaced together with the others
        return found.st_mtime_ns, found.st_ino

    def _read(self) -> Credentials:
        """Read the files as they were written together: a kubelet replaces a link to them all."""
        here = (self._folder / CERTIFICATE).resolve(strict=True).parent
        certificate, key, trusted = (
            (here / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITIES)
        )
        return Credentials(ClientCertificate(certificate, key), trusted)


Caller = OwnCaller | MountedCaller
"""Says what workers are called with."""
