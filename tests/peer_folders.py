"""Folders of certificates as a kubelet fills them, signed by authorities that a test makes."""

import dataclasses
import datetime
import os
from pathlib import Path

from outrider.contract.settings import AUTHORITIES, CERTIFICATE, KEY, PeerSettings, Role
from outrider.operator.certificates.authority import Authorities
from outrider.operator.manifests.certificates import peer_settings
from outrider.operator.naming import identity
from outrider.operator.observed.owner import Owner

DATA, NEXT = "..data", "..data_tmp"


def new_authorities() -> Authorities:
    """One that nobody else trusts."""
    return Authorities().renewed(_now())


def name_of(role: Role, service: str = "chat") -> str:
    """The identity of a role's pods."""
    return identity("default", service, role)


def fill(folder: Path, authorities: Authorities, name: str) -> None:
    """Put a new certificate of who has this name there, instead of what is there; all at once."""
    folder.mkdir(exist_ok=True)
    pair = authorities.issue((name,), _now())
    files = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: authorities.bundle}
    written = folder / f"..{len(list(folder.iterdir()))}"
    written.mkdir()
    for file, content in files.items():
        (written / file).write_bytes(content)
        if not (folder / file).is_symlink():
            (folder / file).symlink_to(f"{DATA}/{file}")
    (folder / NEXT).symlink_to(written.name)
    os.replace(folder / NEXT, folder / DATA)


def peers_in(folder: Path, service: str = "chat") -> PeerSettings:
    """The settings of a worker of this service whose certificate is in a folder."""
    return dataclasses.replace(peer_settings(Owner("default", service, "")), folder=str(folder))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
