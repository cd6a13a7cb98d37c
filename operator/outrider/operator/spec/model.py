"""The model of a role, and its source.

Leaves fetching and reading it to the worker; the URI's forms are those of
`outrider.worker.checkpoints.source`.
"""

import enum
from typing import Annotated

from pydantic import Field

from outrider.operator.spec.part import ObjectName, Rule, SpecPart

_REPOSITORY = r"[A-Za-z0-9_][-A-Za-z0-9_.]*"
_FORMS = (
    r"file://(/.+|[^/\s].*)",
    rf"hf://{_REPOSITORY}/{_REPOSITORY}(@\S+)?",
    r"package://[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(/[^/\s].*)?",
)
Uri = Annotated[str, Field(pattern=f"^({'|'.join(_FORMS)})$", max_length=512)]


class EmbeddingsFrom(enum.StrEnum):
    """Owner of the embedding that a draft borrows."""

    TARGET = "Target"


class TokenSecretRef(SpecPart):
    """A Secret that holds a Hugging Face token."""

    name: ObjectName
    """Name of the Secret, in the service's namespace."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "token"
    """Key of the Secret that holds the token."""


class ModelSource(SpecPart):
    """Where weights come from."""

    rules = (
        Rule(
            "!has(self.revision) || (self.uri.startsWith('hf://') && !self.uri.contains('@'))",
            "goes with an hf:// uri that holds no @revision itself",
            ".revision",
        ),
    )

    uri: Uri
    """Where the weights are: file://, hf:// or package://. A relative file:// is taken from the
    folder of the YAML file by `outrider run`, from the container's working directory in a pod."""
    revision: Annotated[str, Field(pattern=r"^[^@\s]+$", max_length=128)] | None = None
    """Branch, tag or commit of an hf:// repository; left out, its main branch."""
    token_secret_ref: TokenSecretRef | None = None
    """Secret with the token for an hf:// repository that wants one."""

    @property
    def source(self) -> str:
        """The URI with its revision, as workers take it."""
        return self.uri if self.revision is None else f"{self.uri}@{self.revision}"


class TargetModel(ModelSource):
    """The model whose text is served."""

    served_name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The name that requests use; left out, the name of the service."""


class DraftModel(ModelSource):
    """The model that proposes draft tokens."""

    embeddings_from: EmbeddingsFrom | None = None
    """Target: the checkpoint holds no embedding and borrows the target's."""
