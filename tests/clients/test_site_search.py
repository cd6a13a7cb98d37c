"""What the site's own search finds first: pages of users, and none of decisions and sources."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.test_site import ROOT, build

SCRIPT = Path(__file__).with_name("site_search.mjs")
FIRST = {
    "quickstart": "get-started/",
    "install": "how-to/install.html",
    "gpu": "how-to/run-on-a-gpu.html",
    "api key": "get-started/server.html",
    "python client": "how-to/use-the-client.html",
    "go client": "how-to/other-languages.html",
    "kubernetes": "get-started/cluster.html",
    "timeout": "get-started/server.html",
}
OF_MAINTAINERS = ("decisions/", "source/", "recordings/")
SECONDS = 120


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The pages that each query finds, the best first."""
    site = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", site)
    assert done.returncode == 0, done.stderr
    queries = [*FIRST, "yaml", "compiled code"]
    command = ["node", str(SCRIPT), str(site), *queries]
    printed = subprocess.check_output(command, text=True, timeout=SECONDS)
    return {
        query: pages for line in printed.splitlines() for query, pages in json.loads(line).items()
    }


@pytest.mark.parametrize("query", FIRST)
def test_the_first_hit_is_a_page_of_users(hits: dict[str, list[str]], query: str) -> None:
    assert hits[query][0].startswith(FIRST[query])


def test_decisions_sources_and_recordings_are_not_found(hits: dict[str, list[str]]) -> None:
    assert all(hits.values())
    found = {page for pages in hits.values() for page in pages}
    assert [page for page in found if page.startswith(OF_MAINTAINERS)] == []
