"""Admission of clients to the targets.

Leaves who may reach their ports at all to `surroundings`.
"""

from typing import Annotated

from pydantic import Field

from outrider.operator.spec.part import ObjectName, SpecPart


class ApiKeysSecretRef(SpecPart):
    """A Secret that holds API keys."""

    name: ObjectName
    """Name of the Secret, in the service's namespace."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "api-keys"
    """Key of the Secret that holds them, one a line, each of printable ASCII."""


class TlsSecretRef(SpecPart):
    """A Secret with a certificate and its private key."""

    name: ObjectName
    """Name of the Secret, of type kubernetes.io/tls, in the service's namespace; cert-manager
    writes such."""


class Access(SpecPart):
    """Clients that targets answer."""

    api_keys_secret_ref: ApiKeysSecretRef | None = None
    """Secret with API keys: requests over HTTP and gRPC must bring one of them. A changed Secret
    counts as soon as the node has it, without a restart; while it is not there, or holds no key,
    nobody is let in. Left out, targets answer whoever reaches them. `outrider run` takes
    --api-keys."""
    tls_secret_ref: TlsSecretRef | None = None
    """Secret with the certificate that targets show: their ports for clients, HTTP and gRPC, then
    speak TLS only. A changed Secret counts for new connections as soon as the node has it, without
    a restart; while it is not there, no target starts. Left out, they speak plain HTTP and gRPC.
    `outrider run` takes --tls-cert and --tls-key."""
