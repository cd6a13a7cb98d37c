"""The operator's own certificate: one for long, another in time."""

import datetime

from cryptography import x509

from outrider.operator.certificates.authority import LIFE, Authorities
from outrider.operator.naming import OPERATOR_IDENTITY
from outrider.operator.workers.caller import Caller

START = 1_900_000_000.0
BEGAN = datetime.datetime.fromtimestamp(START, datetime.UTC)


def test_calls_are_made_with_one_certificate_until_it_is_due_or_its_authority_is_no_more() -> None:
    now, signers = [START], [Authorities().renewed(BEGAN)]
    caller = Caller(lambda: signers[-1], lambda: now[-1])
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
