"""The site in a headless Chromium, opened from its folder: `python -m tests.browser.site`.

It wants what `python -m tests.browser` does, and `npm ci` in tools/site. Search works without a
server, no table or code of Get started is cut at 1280 px, diagrams are drawn, and no other host is
asked. `python -m tests.browser.site FOLDER` also keeps screenshots.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.browser.__main__ import INSTALLED, SECONDS, install
from tests.unit.docs.test_site import ROOT, build


def seen(site: Path) -> dict[str, Any]:
    """Build the site, and return what the browser saw."""
    done = build(ROOT / "mkdocs.yml", site)
    assert done.returncode == 0, done.stderr
    pictures = [str(Path(one).absolute()) for one in sys.argv[1:2]]
    command = ["node", "site.mjs", str(site), *pictures]
    printed = subprocess.check_output(command, cwd=INSTALLED, text=True, timeout=SECONDS)
    found: dict[str, Any] = json.loads(printed)
    return found


def main() -> None:
    """Run it all."""
    install()
    with tempfile.TemporaryDirectory() as folder:
        found = seen(Path(folder))
    print(json.dumps(found, indent=1))
    assert found["problems"] == []
    assert found["elsewhere"] == [], "nobody else is asked"
    assert len(found["cut"]) >= 5, "the landing page, Install and the three of Get started"
    assert not any(found["cut"].values()), "nothing needs a scroll bar at 1280 px"
    assert found["first"].endswith("get-started/server.html"), "search works from a folder"
    assert found["diagrams"] > 0


if __name__ == "__main__":
    main()
