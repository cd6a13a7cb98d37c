"""A Hugging Face Hub on loopback that has one repository: what its client asks for to download it.

with hub_of(folder, "org/tiny") as hub:
    ...  # HF_ENDPOINT=hub.endpoint
"""

import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

COMMIT = "c" * 40
NO_WAIT = struct.pack("ii", 1, 0)
FROM = re.compile(r"bytes=(\d+)-")


@dataclass
class Hub:
    """A hub, what goes wrong there, and what it was asked for."""

    folder: Path
    repository: str
    endpoint: str = ""
    is_gated: bool = False
    token: str | None = None
    """The one that is valid; None asks for none."""
    claimed: dict[str, int] = field(default_factory=dict)
    """Sizes of files, where they are said to be others."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which a connection is lost: of the next answer that is longer, and of those after
    it; 0 sends no byte."""
    broken: set[str] = field(default_factory=set)
    """Files of which no byte can be had."""
    is_reset: bool = False
    """Whether a connection is lost by a reset, with what was on its way."""
    gone: threading.Event | None = None
    """Where it is given, a connection is not lost but silent until it is set."""
    bodies: list[tuple[str, int]] = field(default_factory=list)
    """Files of which bytes were asked for, and from which on."""

    def size(self, file: Path) -> int:
        """Return what is said of a file's size."""
        return self.claimed.get(file.name, file.stat().st_size)

    def cut(self, length: int) -> int:
        """Return how much is sent of a body."""
        longer = bool(self.cuts) and length > self.cuts[0]
        return self.cuts.pop(0) if longer else length


@contextlib.contextmanager
def hub_of(folder: Path, repository: str, **wrong: Any) -> Iterator[Hub]:
    """Serve the files of a folder as those of a repository."""
    hub = Hub(folder, repository, **wrong)
    server = _Server(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        if hub.gone is not None:
            hub.gone.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def shutdown_request(self, request: Any) -> None:
        """Close a connection, by a reset if it is to be lost so."""
        self.close_request(request)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    models = f"/api/models/{hub.repository}"
    info, tree = f"{models}/revision/main", f"{models}/tree/{COMMIT}"
    files = f"/{hub.repository}/resolve/{COMMIT}/"

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
            file = hub.folder / path.removeprefix(files)
            if hub.token and self.headers["Authorization"] != f"Bearer {hub.token}":
                self._refuse(401, "", "Invalid credentials in Authorization header")
            elif path == info:
                self._send_json({"id": hub.repository, "sha": COMMIT})
            elif path == tree:
                self._send_json([_entry(hub, file) for file in _files(hub.folder)])
            elif path.startswith(files) and hub.is_gated:
                self._refuse(403, "GatedRepo")
            elif path.startswith(files) and with_body and file.name in hub.broken:
                self._refuse(404, "EntryNotFound")
            elif path.startswith(files) and file.is_file():
                self._send_file(file, with_body)
            else:
                known = path.startswith(f"{models}/")
                self._refuse(404, "RevisionNotFound" if known else "RepoNotFound")

        def _refuse(self, status: int, code: str, message: str = "") -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send_json(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _send_file(self, file: Path, with_body: bool) -> None:
            content = file.read_bytes()
            asked = FROM.match(self.headers.get("Range", ""))
            begin = int(asked[1]) if asked else 0
            self.send_response(206 if asked else 200)
            length = hub.size(file) - begin
            self.send_header("Content-Length", str(length))
            if asked:
                last = hub.size(file) - 1
                self.send_header("Content-Range", f"bytes {begin}-{last}/{hub.size(file)}")
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                hub.bodies.append((file.name, begin))
                self._send_body(content[begin:], length)

        def _send_body(self, body: bytes, length: int) -> None:
            sent = hub.cut(length)
            self.close_connection = sent < length
            with contextlib.suppress(OSError):  # the client was killed
                self.wfile.write(body[:sent])
                self.wfile.flush()
            if self.close_connection and hub.is_reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_WAIT)
            if self.close_connection and hub.gone is not None:
                hub.gone.wait()

    return Handler


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _entry(hub: Hub, file: Path) -> dict[str, Any]:
    oid = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"type": "file", "path": file.name, "size": hub.size(file), "oid": oid}
