"""The page at `/`: where it is served, with which headers, and what its files hold."""

import asyncio
import re

import httpx
import pytest

from outrider.contract.process import ENV_PAGE
from outrider.worker.api.http.app import FILES, draft_application, page_routes

ON = {ENV_PAGE: "1"}


def got(path: str, environment: dict[str, str] = ON) -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(draft_application(lambda: True, page_routes(environment)))
        async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_the_page_names_files_that_are_there() -> None:
    text = got("/").text
    named = re.findall(r'(?:href|src)="(page/[^"]+)"', text)
    assert sorted(named) == ["page/app.js", "page/style.css"]
    imported = re.findall(r'from "\./([^"]+)"', got("/page/app.js").text)
    assert sorted(imported) == ["figures.js", "markdown.js", "tree.js"]
    kinds = [got(f"/{name}").headers["content-type"].split(";")[0] for name in sorted(named)]
    assert kinds == ["text/javascript", "text/css"]


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
def test_nothing_from_elsewhere_and_nothing_inline_is_allowed(path: str) -> None:
    headers = got(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_files_hold_nothing_that_the_policy_forbids_and_read_no_answer_as_html() -> None:
    page = (FILES / "index.html").read_text()
    script = "".join(file.read_text() for file in sorted(FILES.glob("*.js")))
    script = script.replace('"http://www.w3.org/2000/svg"', "")  # a name, which nobody fetches
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)
    assert "://" not in page + script, "nothing is asked of anybody else"


@pytest.mark.parametrize("environment", [{}, {ENV_PAGE: "0"}, {ENV_PAGE: ""}])
def test_there_is_no_page_unless_it_is_asked_for(environment: dict[str, str]) -> None:
    assert page_routes(environment) == ()
    assert got("/", environment).status_code == 404


def test_the_page_and_its_files_are_all_that_is_served() -> None:
    paths = {route.path for route in page_routes(ON)}
    assert paths == {"/", *(f"/page/{file.name}" for file in FILES.iterdir())}
    assert all(got(path).status_code == 200 for path in paths)
