"""`python -m outrider.worker models`: what is kept, and what a request gets of it by default."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.kept_models import KeptModel, kept_models, remove
from outrider.worker.errors import ModelError
from outrider.worker.sampling.default_params import default_sampling

logger = logging.getLogger(__name__)


def main(cache: Path, removed: Sequence[str]) -> int:
    """Print what is kept, or what was removed, as JSON, or an object with the key `error` or
    `missing`."""
    try:
        found = remove(cache, removed) if removed else kept_models(cache)
        models = [one.to_fields() | {"default_sampling": _sampling(one)} for one in found]
    except (ModelError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    except ImportError as error:  # the command line can be installed without workers
        print(json.dumps({"missing": str(error)}), flush=True)
        return 1
    print(json.dumps({"models": models}), flush=True)
    return 0


def _sampling(model: KeptModel) -> dict[str, Any]:
    """Return the sampling params of a model; none where its file is gone or damaged meanwhile."""
    directory = model.directory
    try:
        return {} if directory is None else default_sampling(directory)
    except ModelError as error:  # hides no other model
        logger.warning("%s", error)
        return {}
