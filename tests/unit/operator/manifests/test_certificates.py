"""Certificates of a service's pods: in Secrets that passes keep, mounted, named in settings."""

import base64
import datetime
from typing import Any

from cryptography import x509

from outrider.contract.settings import AUTHORITIES, CERTIFICATE, Role, WorkerSettings
from outrider.operator.certificates.authority import LIFE, Authorities
from outrider.operator.cluster.certificate_secrets import AGAIN_SECONDS
from outrider.operator.cluster.kinds import SECRET
from outrider.operator.naming import IDENTITY_ANNOTATION
from tests.unit.operator.one_service import SPEC, START, OneService

BEGAN = datetime.datetime.fromtimestamp(START, datetime.UTC)
TARGET, DRAFT = "chat-target-certificate", "chat-draft-certificate"
SAME_POD = SPEC.replace('"hf://org/small"}', '"hf://org/small"}, placement: SamePod')


def guarded(spec: str = SPEC) -> tuple[OneService, list[Authorities]]:
    """A service whose operator signs certificates; the list holds who signs them."""
    signers = [Authorities().renewed(BEGAN)]
    made = OneService(spec, kinds=(SECRET,), authorities=lambda: signers[-1])
    made.rest(4)
    return made, signers


def held(made: OneService, name: str) -> dict[str, bytes]:
    """The content of a Secret."""
    data = made.cluster.stored["Secret", "default", name].body["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def settings(made: OneService, role: Role) -> WorkerSettings:
    texts = (one["data"].get("settings.json") for one in made.cluster.of("ConfigMap"))
    read = (WorkerSettings.from_json(text) for text in texts if text)
    return next(one for one in read if one.role is role)


def template(made: OneService, role: str) -> Any:
    return made.cluster.stored["Deployment", "default", f"chat-{role}"].body["spec"]["template"]


def test_each_role_has_a_certificate_of_its_own_name_which_its_pods_mount() -> None:
    made, signers = guarded()
    for role, name in ((Role.TARGET, TARGET), (Role.DRAFT, DRAFT)):
        found = x509.load_pem_x509_certificate(held(made, name)[CERTIFICATE])
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"{role}.chat.default.outrider"]
        found.verify_directly_issued_by(signers[0].pairs[0].parsed)
        of_pods = template(made, role)
        assert (
            of_pods["metadata"]["annotations"][IDENTITY_ANNOTATION]
            == f"{role}.chat.default.outrider"
        )
        volumes = {one["name"]: one for one in of_pods["spec"]["volumes"]}
        assert volumes["certificates"]["secret"]["secretName"] == name
        (container,) = of_pods["spec"]["containers"]
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        peers = settings(made, role).peers
        assert peers is not None
        assert mounts["certificates"] == peers.folder
        assert peers.target == "target.chat.default.outrider"
        prepared = {
            one["name"]
            for init in of_pods["spec"]["initContainers"]
            for one in init["volumeMounts"]
        }
        assert "certificates" not in prepared


def test_passes_keep_a_certificate_until_it_is_due_and_roll_nothing_for_a_new_one() -> None:
    made, _ = guarded()
    before, pods = held(made, TARGET), template(made, "target")
    made.now += (LIFE / 2).total_seconds()
    made.rest(4)
    assert held(made, TARGET) == before
    made.now += (LIFE / 4).total_seconds()
    made.rest(4)
    after = held(made, TARGET)
    assert after[CERTIFICATE] != before[CERTIFICATE]
    assert after[AUTHORITIES] == before[AUTHORITIES]
    assert template(made, "target") == pods


def test_a_new_authority_is_told_to_all_at_once_and_certificates_stay() -> None:
    made, signers = guarded()
    before = held(made, TARGET)
    signers.append(Authorities((*signers[0].pairs, *Authorities().renewed(BEGAN).pairs)))
    made.rest(4)
    after = held(made, TARGET)
    assert after[CERTIFICATE] == before[CERTIFICATE]
    assert after[AUTHORITIES] == signers[-1].bundle


def test_what_somebody_else_put_there_is_replaced() -> None:
    made, _ = guarded()

    def spoil(live: Any) -> None:
        live["data"][CERTIFICATE] = "bm8="

    made.cluster.edit(("Secret", "default", TARGET), spoil)
    made.now += AGAIN_SECONDS
    made.rest(4)
    assert held(made, TARGET)[CERTIFICATE].startswith(b"-----BEGIN CERTIFICATE")


def test_a_draft_in_its_targets_pod_needs_none() -> None:
    made, _ = guarded(SAME_POD)
    assert [one["metadata"]["name"] for one in made.cluster.of("Secret")] == [TARGET]
    assert settings(made, Role.DRAFT).peers is None
    assert settings(made, Role.TARGET).peers is not None
    volumes = template(made, "target")["spec"]["volumes"]
    mounted = [one["secret"]["secretName"] for one in volumes if "secret" in one]
    assert mounted == [TARGET]


def test_no_content_of_a_secret_is_in_status_or_events() -> None:
    made, _ = guarded()
    shown = repr(made.cluster.stored["SpeculativeService", "default", "chat"].body)
    shown += repr(made.cluster.events)
    for name in (TARGET, DRAFT):
        for value in made.cluster.stored["Secret", "default", name].body["data"].values():
            assert value not in shown
            assert base64.b64decode(value).decode().splitlines()[1] not in shown
