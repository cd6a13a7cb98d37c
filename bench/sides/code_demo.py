"""`make demo DEMO=code`: an edit of code by Qwen2.5-Coder 1.5B, with and without its 0.5B draft.

    python -m bench.sides.code_demo [--yes]      # --yes fetches 1.6 GB without a question

The prompt is a small module and a wish; most of the answer repeats the module.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.prompts.pairs import STACK, STACK_WISH
from bench.sides import code_pair

OUTRIDER = str(Path(sys.prefix) / "bin" / "outrider")
MOST_TOKENS = "400"


def main() -> int:
    """Fetch the pair where it is missing, and compare; the exit status of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m bench.sides.code_demo", description=__doc__)
    parser.add_argument("--yes", action="store_true", help="fetch without a question")
    options = parser.parse_args()
    if not (code_pair.is_there() or options.yes or agreed()):
        return 1
    try:
        target, draft = code_pair.fetch(lambda line: print(line, file=sys.stderr))
    except code_pair.FetchError as error:
        print(f"code_demo: {error}", file=sys.stderr)
        return 1
    serve = (OUTRIDER, "serve", str(target), "--draft", str(draft), "--print-yaml")
    yaml = subprocess.run(serve, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="outrider-demo-") as folder:
        file = Path(folder, "service.yaml")
        file.write_text(yaml, encoding="utf-8")
        prompt = f"{STACK_WISH}\n\n```python\n{STACK}```"
        asked = ("--prompt", prompt, "--max-tokens", MOST_TOKENS, "--compare")
        return subprocess.run([OUTRIDER, "run", "-f", str(file), *asked], check=False).returncode


def agreed() -> bool:
    """Ask whether to fetch."""
    megabytes = sum(file.megabytes for file in (code_pair.TARGET, code_pair.DRAFT))
    print("Qwen2.5-Coder-Instruct of 1.5B and 0.5B parameters (Apache-2.0):")
    print(f"{megabytes} MB to fetch into {code_pair.folder()}.")
    if not sys.stdin.isatty():
        print("make demo DEMO=code YES=1 fetches them.")
        return False
    return input("Fetch them? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    sys.exit(main())
