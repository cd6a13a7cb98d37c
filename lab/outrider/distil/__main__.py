"""`python -m outrider.distil FILE`: what `outrider distil` starts.

Prints progress as JSON lines and one JSON object with the keys `result` and `out` at the end.
"""

import argparse
import json
import logging
import os
import sys
from pathlib import Path

try:
    import torch

    from outrider.contract.files import user_cache
    from outrider.distil.distillation import Distillation
    from outrider.distil.errors import DistilError
    from outrider.distil.progress import Progress
    from outrider.distil.recipe import read_recipe
    from outrider.worker.errors import WorkerError
    from outrider.worker.host.process import exit_with_parent
except ImportError as error:  # the command line can be installed without torch
    print(json.dumps({"missing": str(error)}), flush=True)
    sys.exit(1)

INPUT_ERROR = 2


def main() -> int:
    """Run the recipe; status 2 for one that cannot work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--parent-fd", type=int)
    options = parser.parse_args()
    exit_with_parent(options.parent_fd)
    logging.basicConfig(level=logging.WARNING)
    progress = Progress()
    try:
        recipe = read_recipe(options.file)
        torch.set_num_threads(recipe.threads)
        result = Distillation.begin(recipe, user_cache(), progress).run()
    except (DistilError, WorkerError, OSError) as error:
        progress.tell(error=str(error))
        return INPUT_ERROR
    progress.tell(result=result, out=str(recipe.out))
    sys.stdout.flush()
    os._exit(0)  # only threads in compiled code, and memory, are left


if __name__ == "__main__":
    sys.exit(main())
