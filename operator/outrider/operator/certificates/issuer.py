"""An issuer of cert-manager's, which signs certificates of workers in the operator's place."""

from dataclasses import dataclass
from typing import Self

GROUP = "cert-manager.io"


@dataclass(frozen=True, slots=True)
class Issuer:
    """What a Certificate refers to; a ClusterIssuer, or one of that name in each namespace."""

    kind: str
    group: str
    name: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read KIND/NAME or KIND.GROUP/NAME; raises `ValueError`."""
        kind_and_group, slash, name = text.partition("/")
        kind, _, group = kind_and_group.partition(".")
        if not (slash and kind and name):
            raise ValueError(f"{text!r} is not allowed; allowed: KIND/NAME or KIND.GROUP/NAME")
        return cls(kind, group or GROUP, name)

    @property
    def reference(self) -> dict[str, str]:
        """The same, as a Certificate has it."""
        return {"name": self.name, "kind": self.kind, "group": self.group}
