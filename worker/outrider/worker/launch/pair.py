"""`python -m outrider.worker pair`: how a draft would draft for a target, before either is loaded.

Reads their tokenizers alone, once both are prepared.
"""

import json

from outrider.contract.settings import WorkerSettings
from outrider.worker.checkpoints.translation import tokens_for
from outrider.worker.errors import ModelError, PairRefused
from outrider.worker.launch.prepare import prepare_models


def main(settings: WorkerSettings) -> int:
    """Print, as JSON, the share of a colocated draft's tokens that the target has (null: they have
    one tokenizer) or why the pair is `refused`, or an object with the key `error`."""
    try:
        print(json.dumps({"pair": share_of(settings)}), flush=True)
    except PairRefused as error:
        print(json.dumps({"refused": str(error)}), flush=True)
    except ModelError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


def share_of(settings: WorkerSettings) -> dict[str, float | None]:
    """Return the share of the draft's tokens that are the target's too; None for one tokenizer.

    Raises `ModelError` and `PairRefused`.
    """
    models = prepare_models(settings)
    assert models.colocated is not None
    translation = tokens_for(models.own, models.colocated, models.vocabulary).translation
    return {"share": None if translation is None else translation.share}
