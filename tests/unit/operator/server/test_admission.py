"""The webhook that warns: what it says, that it refuses nothing, that it takes up a certificate."""

import asyncio
import copy
import datetime
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outrider.operator.__main__ import parse
from outrider.operator.server import admission
from outrider.operator.server.admission import CERTIFICATE, KEY, PATH, ListenPlace, reviewed
from outrider.operator.server.metrics import OperatorMetrics
from tests.unit.operator.one_service import OneService

HOST = "127.0.0.1"


def review(body: Any) -> dict[str, Any]:
    request = {"uid": "7", "operation": "CREATE", "object": body}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def body() -> Any:
    return copy.deepcopy(OneService().raw)


def test_what_is_meant_is_allowed_without_a_word() -> None:
    answer = reviewed(review(body()))
    assert answer["response"] == {"uid": "7", "allowed": True, "warnings": []}
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")


def test_what_is_probably_not_meant_is_allowed_with_a_warning() -> None:
    unasked = body()
    del unasked["spec"]["draft"]["resources"]
    response = reviewed(review(unasked))["response"]
    assert response["allowed"]
    assert [warning.partition(":")[0] for warning in response["warnings"]] == [
        "spec.draft.resources"
    ]


def test_what_this_operator_cannot_read_is_allowed_with_a_warning() -> None:
    newer = body()
    newer["spec"]["fashion"] = "x" * 900
    newer["spec"]["speculation"] = {"maxRows": "y" * 900}
    response = reviewed(review(newer))["response"]
    assert response["allowed"]
    assert all(one.startswith("this operator cannot read it: ") for one in response["warnings"])
    assert max(map(len, response["warnings"])) <= 250


def test_a_deletion_without_an_object_is_no_trouble() -> None:
    response = reviewed(review(None))["response"]
    assert response["allowed"]


def certify(folder: Path, name: str) -> None:
    """Write a self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(encoding, private, serialization.NoEncryption())
    (folder / KEY).write_bytes(text)
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(encoding))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def shown(port: int) -> str:
    """Name in the certificate that a new connection is shown."""
    text = ssl.get_server_certificate((HOST, port), timeout=20)
    found = x509.load_pem_x509_certificate(text.encode())
    return str(found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def test_reviews_are_answered_and_a_renewed_certificate_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr(admission, "RENEWAL_CHECK_SECONDS", 0.01)
    certify(tmp_path, "first")
    url = f"https://{HOST}:{free_port}{PATH}"
    metrics = OperatorMetrics()

    async def scene() -> None:
        place = ListenPlace(HOST, free_port, tmp_path)
        async with (
            asyncio.timeout(60),
            admission.serving(place, metrics.reviews),
            aiohttp.ClientSession() as session,
        ):
            assert await asyncio.to_thread(shown, free_port) == "first"
            async with session.post(url, json=review(body()), ssl=False) as answer:
                assert (await answer.json())["response"]["allowed"]
            for other in (
                review({**body(), "spec": {}}),
                {**review(None), "request": {"uid": "8"}},
            ):
                async with session.post(url, json=other, ssl=False) as answer:
                    assert (await answer.json())["response"]["allowed"]
            async with session.post(url, data=b"{}", ssl=False) as answer:
                assert answer.status == 400
            certify(tmp_path, "second")
            while await asyncio.to_thread(shown, free_port) != "second":
                await asyncio.sleep(0)

    asyncio.run(scene())
    assert counted(metrics) == {
        ("CREATE", "allowed"): 1,
        ("CREATE", "warned"): 1,
        ("other", "allowed"): 1,
        ("other", "malformed"): 1,
    }


def counted(metrics: OperatorMetrics) -> dict[tuple[str, str], float]:
    """Return the reviews, by operation and result."""
    samples = (one for family in metrics.reviews.collect() for one in family.samples)
    found = (one for one in samples if one.name == "outrider_operator_admission_total")
    return {(one.labels["operation"], one.labels["result"]): one.value for one in found}


def test_its_flags_need_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--worker-image=w", "--admission-listen=0.0.0.0:8443"]
    with pytest.raises(SystemExit):
        parse(given)
    assert "each needs the other" in capsys.readouterr().err
    options = parse([*given, "--admission-certificates=/somewhere"])
    assert options.admission == ListenPlace("0.0.0.0", 8443, Path("/somewhere"))
