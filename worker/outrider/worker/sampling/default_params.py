"""A model's own sampling params, for requests that name none: its generation_config.json.

Leaves end tokens to `config_file`. Penalties beside the repetition penalty, beams and lengths are
not read: no model that is served here states them.
"""

import logging
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.config_file import GENERATION_CONFIG, read_json
from outrider.worker.errors import InvalidField
from outrider.worker.sampling.params import SamplingParams

KINDS = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty"), float),
    "top_k": int,
}
"""Fields of `SamplingParams` that a model may set, and their types."""

logger = logging.getLogger(__name__)


def default_sampling(directory: Path) -> dict[str, Any]:
    """Return fields of `SamplingParams` by the file in a folder; none where it is silent.

    A file that says not to sample means greedy decoding. A value out of its limits is left out,
    with a warning. Raises `ModelError` for a file that cannot be read.
    """
    file = directory / GENERATION_CONFIG
    fields = read_json(file) if file.is_file() else {}
    if fields.get("do_sample") is False:
        fields = {"temperature": 0.0, "repetition_penalty": fields.get("repetition_penalty")}
    found: dict[str, Any] = {}
    for name, kind in KINDS.items():
        if (value := fields.get(name)) is not None:
            try:
                SamplingParams(**{name: value}).validate(vocabulary=0)
                found[name] = kind(value)
            except (InvalidField, TypeError, ValueError) as error:
                logger.warning("%s: %s is left out: %s", file, name, error)
    return found
