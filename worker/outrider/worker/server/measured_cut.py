"""The cut of a target whose stages all run here: as given, else by measured times.

Leaves measuring to `python -m outrider.worker cut`, a process that loads what this one need not.
"""

import asyncio
import dataclasses
import json
import logging
import sys
from pathlib import Path

from outrider.contract.settings import WorkerSettings
from outrider.worker.errors import ModelError

logger = logging.getLogger(__name__)


async def with_cut(settings: WorkerSettings, scratch: Path) -> WorkerSettings:
    """Return settings that name the layers of each stage; log which, and why.

    Raises `ModelError` if nothing can be measured.
    """
    pipeline = settings.pipeline
    if pipeline.cut:
        logger.info("cut into %s layers, as given", " + ".join(map(str, pipeline.cut)))
        return settings
    file = scratch / "cut.json"
    file.write_text(settings.to_json())
    command = ("-P", "-m", "outrider.worker", "cut", "--settings", str(file))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise ModelError(f"the cut over {pipeline.stages} stages cannot be measured")
    found = json.loads(output)
    logger.info("%s", found["words"])
    cut = dataclasses.replace(pipeline, cut=tuple(found["cut"]))
    return dataclasses.replace(settings, pipeline=cut)
