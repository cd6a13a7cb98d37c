"""A Hugging Face Hub on loopback that has one repository: what its client asks for to download it.

with hub_of(folder, "org/tiny") as endpoint:
    ...  # HF_ENDPOINT=endpoint
"""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

COMMIT = "c" * 40


@contextlib.contextmanager
def hub_of(folder: Path, repository: str) -> Iterator[str]:
    """Serve the files of a folder as those of a repository; yield the endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, repository))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(folder: Path, repository: str) -> type[BaseHTTPRequestHandler]:
    info, tree = (
        f"/api/models/{repository}/revision/main",
        f"/api/models/{repository}/tree/{COMMIT}",
    )
    files = f"/{repository}/resolve/{COMMIT}/"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

        def _answer(self, with_body: bool) -> None:
            path = urlparse(self.path).path
            if path == info:
                self._send(json.dumps({"id": repository, "sha": COMMIT}).encode(), with_body)
            elif path == tree:
                self._send(
                    json.dumps([_entry(file) for file in _files(folder)]).encode(), with_body
                )
            elif path.startswith(files) and (folder / path.removeprefix(files)).is_file():
                self._send((folder / path.removeprefix(files)).read_bytes(), with_body)
            else:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send(self, body: bytes, with_body: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    return Handler


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _entry(file: Path) -> dict[str, Any]:
    oid = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": oid}
