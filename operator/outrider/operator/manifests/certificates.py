"""The certificate of a role's pods: in a Secret that is kept while it is good, else issued anew; or
a wish for one to cert-manager. Pure, but for the keys that are drawn.
"""

import base64
import binascii
import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from outrider.contract.settings import AUTHORITIES, CERTIFICATE, KEY, PeerSettings, Role
from outrider.operator.certificates.authority import LIFE, Authorities, KeyPair
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.kinds import CERTIFICATE as ISSUED_KIND
from outrider.operator.cluster.kinds import SECRET, ChildKey
from outrider.operator.manifests.child import Object, child
from outrider.operator.naming import OPERATOR_IDENTITY, certificate_name, identity, issued_name
from outrider.operator.observed.live_workloads import LiveWorkloads
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import template_of

FOLDER = "/etc/outrider/certificates"
TYPE = "kubernetes.io/tls"


def secret_key(service: str, role: Role) -> ChildKey:
    """Return the key of the Secret with the certificate of a role's pods."""
    return SECRET.name, certificate_name(service, role)


def certificate_secrets(
    owner: Owner,
    roles: Iterable[Role],
    children: Mapping[ChildKey, Mapping[str, Any]],
    authorities: Authorities | None,
    now: float,
    lender: str | None = None,
) -> tuple[Object, ...]:
    """Return the Secrets with the certificates of roles' pods; `children` are those of `owner`,
    `authorities` None: the operator signs none; `now` in seconds since the epoch; `lender`: the
    service whose drafts the targets link to."""
    if authorities is None:
        return ()
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return tuple(
        certificate_secret(
            owner, role, children.get(secret_key(owner.name, role)), authorities, at, lender
        )
        for role in roles
    )


def names(owner: Owner, role: Role, lender: str | None) -> tuple[str, ...]:
    """Return the DNS names in the certificate of a role's pods: drafts of another service take its
    targets for their own."""
    services = (owner.name,) if lender is None else (owner.name, lender)
    return tuple(identity(owner.namespace, name, role) for name in services)


def certificate_secret(
    owner: Owner,
    role: Role,
    live: Mapping[str, Any] | None,
    authorities: Authorities,
    now: datetime.datetime,
    lender: str | None = None,
) -> Object:
    """Return the Secret of a role's pods; `live`: the one that is there, None: none is; `lender`:
    as of `certificate_secrets`."""
    held, pair = names(owner, role, lender), None if live is None else _pair(live)
    if pair is None or not authorities.vouch(pair, held, now):
        pair = authorities.issue(held, now)
    data = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: authorities.bundle}
    return child(
        SECRET,
        owner,
        certificate_name(owner.name, role),
        role,
        type=TYPE,
        data={key: base64.b64encode(value).decode() for key, value in data.items()},
    )


def issued_certificate(
    owner: Owner, role: Role, issuer: Issuer, lender: str | None = None
) -> Object:
    """Return the Certificate of a role's pods, for which cert-manager writes a Secret and renews
    it, with lives as those that the operator signs have."""
    name = issued_name(owner.name, role)
    spec = {
        "secretName": name,
        "dnsNames": [*names(owner, role, lender)],
        "usages": ["digital signature", "server auth", "client auth"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "duration": _hours(LIFE),
        "renewBefore": _hours(LIFE / 3),
        "issuerRef": issuer.reference,
    }
    return child(ISSUED_KIND, owner, name, role, spec=spec)


def former_secret(service: str, role: Role, current: LiveWorkloads, wanted: str) -> str:
    """Return the Secret with another signer's certificate that a role's pods still mount, empty:
    none; `wanted` is the one that they are to mount."""
    signed = {certificate_name(service, role), issued_name(service, role)} - {wanted}
    specs = (template_of(one.live).get("spec", {}) for one in current.workloads)
    volumes = (volume for spec in specs for volume in spec.get("volumes") or ())
    names = (volume.get("secret", {}).get("secretName", "") for volume in volumes)
    return next((name for name in names if name in signed), "")


def _hours(life: datetime.timedelta) -> str:
    """Return a duration as Kubernetes writes it."""
    return f"{int(life.total_seconds()) // 3600}h0m0s"


def peer_settings(owner: Owner, lender: str | None = None) -> PeerSettings:
    """Return the names by which the workers of a service know each other; `lender`: the service
    whose drafts its targets link to."""
    target = identity(owner.namespace, owner.name, Role.TARGET)
    draft = identity(owner.namespace, lender or owner.name, Role.DRAFT)
    return PeerSettings(folder=FOLDER, target=target, draft=draft, operator=OPERATOR_IDENTITY)


def _pair(live: Mapping[str, Any]) -> KeyPair | None:
    """Return what a Secret holds; None: it is not there, or no such thing."""
    data = live.get("data") or {}
    try:
        return KeyPair(*(base64.b64decode(data[key], validate=True) for key in (CERTIFICATE, KEY)))
    except (KeyError, binascii.Error):
        return None
