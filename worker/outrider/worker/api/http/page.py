"""The page at `/` of a target: a chat and live figures, in static files that need no key.

The page asks the API as any client does, with the key that its user types. Leaves what it shows to
`page_files/app.js`.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from outrider.contract.process import ENV_PAGE

FILES = Path(__file__).with_name("page_files")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and nothing inline."""
HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
)


def routes(environment: Mapping[str, str]) -> tuple[Route, ...]:
    """Return the routes of the page and its files; none where the environment asks for no page."""
    if environment.get(ENV_PAGE) != "1":
        return ()
    files = (Route(f"/page/{file.name}", _sender(file)) for file in sorted(FILES.iterdir()))
    return (Route("/", _sender(FILES / "index.html")), *files)


def _sender(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return FileResponse(file, headers=HEADERS)

    return send
