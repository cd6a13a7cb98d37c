"""The operator's own certificate: one for long, another in time."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from outrider.contract.settings import AUTHORITIES, CERTIFICATE, KEY
from outrider.operator.certificates.authority import LIFE, Authorities
from outrider.operator.naming import OPERATOR_IDENTITY
from outrider.operator.workers.caller import MountedCaller, OwnCaller

START = 1_900_000_000.0
BEGAN = datetime.datetime.fromtimestamp(START, datetime.UTC)


def test_calls_are_made_with_one_certificate_until_it_is_due_or_its_authority_is_no_more() -> None:
    now, signers = [START], [Authorities().renewed(BEGAN)]
    caller = OwnCaller(lambda: signers[-1], lambda: now[-1])
    first = caller.credentials()
    certificate = x509.load_pem_x509_certificate(first.own.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [OPERATOR_IDENTITY]
    assert first.trusted == signers[0].bundle
    now.append(START + LIFE.total_seconds() / 2)
    assert caller.credentials() == first
    now.append(START + LIFE.total_seconds() * 3 / 4)
    second = caller.credentials()
    assert second.own != first.own
    signers.append(Authorities().renewed(BEGAN))
    third = caller.credentials()
    assert third.own != second.own
    assert third.trusted == signers[1].bundle
    assert "PRIVATE" not in repr(third)


class Mounted:
    """A folder of a Secret, as a kubelet writes it: through a link that it replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0

    def write(self, authorities: Authorities) -> None:
        self._count += 1
        version = self.folder / f"..{self._count}"
        version.mkdir()
        pair = authorities.issue((OPERATOR_IDENTITY,), BEGAN)
        contents = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: authorities.bundle}
        for name, content in contents.items():
            (version / name).write_bytes(content)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")
        for name in contents:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


def test_a_mounted_certificate_is_read_again_when_it_is_another(tmp_path: Path) -> None:
    signers = Authorities().renewed(BEGAN)
    mounted = Mounted(tmp_path)
    mounted.write(signers)
    caller = MountedCaller(tmp_path)
    first = caller.credentials()
    assert first.trusted == signers.bundle
    assert caller.credentials() is first
    mounted.write(signers)
    second = caller.credentials()
    assert second.own != first.own
    assert "PRIVATE" not in repr(second)


def test_a_mounted_certificate_that_is_gone_stays_as_it_was_read(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.write(Authorities().renewed(BEGAN))
    caller = MountedCaller(tmp_path)
    first = caller.credentials()
    (tmp_path / "..data").unlink()
    assert caller.credentials() is first


def test_an_operator_without_its_files_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MountedCaller(tmp_path)
