"""Certificates that an issuer of cert-manager's signs, on a real API server.

cert-manager is not there: its definition is made by hand, and what it does for a Certificate, which
is to write a Secret, the test does.
"""

import base64
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.client import Client, Unavailable
from outrider.contract.process import CONTROL_PORT
from outrider.contract.settings import AUTHORITIES, CERTIFICATE, KEY, Role
from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.kinds import CERTIFICATE as KIND
from outrider.operator.cluster.kinds import SECRET
from outrider.operator.naming import OPERATOR_IDENTITY
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.other_kinds import installed
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service

ISSUER = {"kind": "ClusterIssuer", "group": "cert-manager.io", "name": "mine"}
ROLES = {"chat-target-issued": "target", "chat-draft-issued": "draft"}


@dataclass(frozen=True, slots=True)
class CertManager:
    """What cert-manager does, with an authority of its own."""

    space: Space
    authorities: Authorities

    def look(self) -> None:
        """Writes the Secret of each Certificate that has none."""
        for wanted in self.space.items(KIND):
            assert wanted["spec"]["issuerRef"] == ISSUER
            (name,) = wanted["spec"]["dnsNames"]
            if self.space.get(SECRET, wanted["spec"]["secretName"]) is None:
                self.space.apply(self._secret(wanted["spec"]["secretName"], name))

    def files(self, name: str) -> dict[str, bytes]:
        """What such a Secret holds."""
        pair = self.authorities.issue((name,), datetime.datetime.now(datetime.UTC))
        return {
            CERTIFICATE: pair.certificate,
            KEY: pair.key,
            AUTHORITIES: self.authorities.bundle,
        }

    def _secret(self, secret: str, name: str) -> Object:
        data = {key: base64.b64encode(value).decode() for key, value in self.files(name).items()}
        meta = {"name": secret}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        return {**kind, "metadata": meta, "data": data}


@pytest.fixture
def cert_manager(space: Space) -> CertManager:
    return CertManager(space, Authorities().renewed(datetime.datetime.now(datetime.UTC)))


@pytest.fixture
def arguments(cert_manager: CertManager, namespace: str, tmp_path: Path) -> tuple[str, ...]:
    """Of an operator that has a certificate of the same issuer, as the chart mounts it."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    for name, content in cert_manager.files(OPERATOR_IDENTITY).items():
        (folder / name).write_bytes(content)
    where = ("--namespace", namespace, "--lease-namespace", namespace)
    return (*where, "--peer-issuer", "ClusterIssuer/mine", "--peer-folder", str(folder))


@pytest.fixture
def issued(
    control_plane: ControlPlane, operators: Operators, arguments: tuple[str, ...]
) -> Iterator[OperatorProcess]:
    with installed(control_plane, KIND):
        operator = operators.start(arguments)
        operator.wait_until_leading()
        yield operator
        operator.end()


def test_workers_and_operator_know_each_other_by_what_the_issuer_signed(
    space: Space, cert_manager: CertManager, issued: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))

    def linked() -> bool:
        cert_manager.look()
        found = space.condition("chat", "LinkEstablished")
        return (found.get("status"), found.get("reason")) == ("True", "Connected")

    space.until(linked, "the operator tells targets of drafts")
    wanted = {one["metadata"]["name"]: one["spec"]["dnsNames"] for one in space.items(KIND)}
    own = f"chat.{space.namespace}.outrider"
    assert wanted == {name: [f"{role}.{own}"] for name, role in ROLES.items()}
    secrets = {one["metadata"]["name"] for one in space.items(SECRET)}
    assert secrets == set(ROLES), "the operator signs nothing"
    (target,) = workers.wait_for(Role.TARGET, 1)
    with Client(f"{target.ip}:{CONTROL_PORT}") as stranger, pytest.raises(Unavailable):
        stranger.state(timeout=60)


def test_a_wish_that_is_deleted_is_made_again(space: Space, issued: OperatorProcess) -> None:
    space.apply(service("chat"))
    space.until_seen("chat")
    before = space.there(KIND, "chat-target-issued")["metadata"]["uid"]
    space.delete(KIND, "chat-target-issued")

    def another() -> bool:
        found = space.get(KIND, "chat-target-issued")
        return found is not None and found["metadata"]["uid"] != before

    space.until(another, "the Certificate is there again")


def test_a_draft_that_goes_takes_its_wish_along(space: Space, issued: OperatorProcess) -> None:
    space.apply(service("chat"))
    space.until_seen("chat")
    assert {one["metadata"]["name"] for one in space.items(KIND)} == set(ROLES)
    alone = service("chat")
    del alone["spec"]["draft"]
    space.apply(alone)
    space.until(lambda: space.get(KIND, "chat-draft-issued") is None, "the draft's is gone")
    space.there(KIND, "chat-target-issued")


def test_without_cert_manager_an_operator_that_needs_it_says_so(
    operators: Operators, arguments: tuple[str, ...]
) -> None:
    operator = operators.start(arguments)
    operators.control_plane.wait_until(lambda: not operator.alive, "it has ended")
    assert operator.status == 1
    assert "cert-manager has to be installed first" in operator.said
