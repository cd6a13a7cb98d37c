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


class Access(SpecPart):
    """Clients that targets answer."""

    api_keys_secret_ref: ApiKeysSecretRef | None = None
    """Secret with API keys: requests over HTTP and gRPC must bring one of them. A changed Secret
    counts as soon as the node has it, without a restart; while it is not there, or holds no key,
    nobody is let in. Left out, targets answer whoever reaches them. `outrider run` takes
    --api-keys."""
