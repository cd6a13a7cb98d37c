"""What is known on this machine of a service's models: where answers end, how they are sampled, and
how the draft drafts.

A worker has noted it when it prepared them; one that was not prepared here is left out.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from outrider.cli.models.kept import ModelCache, sampling_in_words
from outrider.cli.service.validation import Checked, Problem


async def kept_of(found: Sequence[Checked], cache: ModelCache) -> dict[str, dict[str, Any]]:
    """Return what is kept of any model, by its URIs; nothing where no service has any.

    Raises `Failure`.
    """
    if not any(one.models for one in found) or not cache.has_any():
        return {}
    kept = await cache.models()
    return {uri: model for model in kept if model["is_whole"] for uri in model["uris"]}


def answers_of(
    found: Sequence[Checked], kept: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return an object for each model of the services that is `kept`."""
    wanted = [(one, role, uri) for one in found for role, uri in one.models.items()]
    return [
        {"document": one.number, "role": role, "uri": uri}
        | {key: kept[uri][key] for key in ("end_tokens", "default_sampling")}
        for one, role, uri in wanted
        if uri in kept
    ]


async def with_pairings(
    found: Sequence[Checked], kept: Container[str], cache: ModelCache
) -> tuple[Checked, ...]:
    """Return what was found, with how the draft of each service drafts whose models are `kept`: one
    that cannot is an error. Raises `Failure`."""
    return tuple([await _with_pairing(one, kept, cache) for one in found])


async def _with_pairing(one: Checked, kept: Container[str], cache: ModelCache) -> Checked:
    target, draft = one.models.get("target"), one.models.get("draft")
    if target is None or draft is None or target not in kept or draft not in kept:
        return one
    pair = await cache.pairing(target, draft)
    if pair.refused:
        return replace(one, errors=(Problem("spec.draft.model.uri", str(pair)),))
    return replace(one, drafting=str(pair))


def in_words(answers: Mapping[str, Any]) -> str:
    """Say what `answers_of` returned of one model."""
    ends = ", ".join(answers["end_tokens"]) or "no token"
    words = f"answers of the {answers['role']} {answers['uri']} end at {ends}"
    sampling = sampling_in_words(answers["default_sampling"])
    return f"{words}; where a request names no sampling: {sampling}" if sampling else words
