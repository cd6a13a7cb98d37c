"""What is known on this machine of a service's models: where answers end, and how they are sampled.

A worker has noted it when it prepared them; one that was not prepared here is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.cli.models.kept import Shelf, sampling_in_words
from outrider.cli.service.validation import Checked


async def answers_of(found: Sequence[Checked], shelf: Shelf) -> list[dict[str, Any]]:
    """Return an object for each model of the services that is kept; raises `Failure`."""
    wanted = [(one, role, uri) for one in found for role, uri in one.models.items()]
    kept = await shelf.models() if wanted and shelf.has_any() else []
    by_uri = {uri: model for model in kept if model["is_whole"] for uri in model["uris"]}
    return [
        {"document": one.number, "role": role, "uri": uri}
        | {key: by_uri[uri][key] for key in ("end_tokens", "default_sampling")}
        for one, role, uri in wanted
        if uri in by_uri
    ]


def in_words(answers: Mapping[str, Any]) -> str:
    """Say what `answers_of` returned of one model."""
    ends = ", ".join(answers["end_tokens"]) or "no token"
    words = f"answers of the {answers['role']} {answers['uri']} end at {ends}"
    sampling = sampling_in_words(answers["default_sampling"])
    return f"{words}; where a request names no sampling: {sampling}" if sampling else words
