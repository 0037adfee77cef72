"""A host on a real socket that replies as the state of each request tells it to."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

ANSWERS = {
    "urgent": {"type": "noul", "noul": 0.31},
    "label": {
        "type": "choice",
        "choice": "billing",
        "confidence": 0.8,
        "probabilities": {"billing": 0.9, "other": 0.1},
    },
    "tone": {
        "type": "score",
        "score": 0.06,
        "confidence": 0.9,
        "legend": {"0": "calm", "1": "angry"},
        "probabilities": {"0": 0.94, "1": 0.06},
    },
}
BODY = {"model": "jev-1.14.0", "answers": ANSWERS, "usage": {"input_tokens": 12, "output_tokens": 34}}
MODELS = {"models": [{"name": "jev-latest", "description": "newest", "release_date": "2026-09-10"}]}
REQUEST_ID = "req_01a0d378b24474e89a9636d4639da734"


@dataclass
class Host:
    """What arrived."""

    url: str
    requests: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    """Per scenario name the bodies, in order."""
    retry_counts: dict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))


def state(name: str, *replies: dict[str, Any]) -> dict[str, Any]:
    """A state that makes the host reply so: `status`, `body`, `headers`, or `drop`/`hang` instead of a reply.

    The last reply repeats.
    """
    return {"name": name, "replies": list(replies) or [{}]}


@contextmanager
def stub_host() -> Iterator[Host]:
    """The host, on a free port, until the end of the block."""
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host: ClassVar[Host]

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, replies = body["state"]["name"], body["state"]["replies"]
            seen = self.host.requests[name]
            seen.append(body)
            self.host.retry_counts[name].append(self.headers.get("X-TypeSafe-Retry-Count"))
            reply = replies[min(len(seen), len(replies)) - 1]
            if reply.get("drop"):
                self.close_connection = True
                return
            if reply.get("hang"):
                release.wait(5)
                self.close_connection = True
                return
            self.reply(reply.get("status", 200), reply.get("body", BODY), reply.get("headers", {}))

        def do_GET(self) -> None:
            self.reply(200, MODELS, {})

        def reply(self, status: int, body: Any, headers: dict[str, str]) -> None:
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            for key, value in {"x-typesafe-request-id": REQUEST_ID, **headers}.items():
                self.send_header(key, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.host = Host(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Handler.host
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()
