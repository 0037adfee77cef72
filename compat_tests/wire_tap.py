"""A relay in front of a server that keeps the heads of the requests which a client really sends."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

__all__ = ["SeenRequest", "WireTap", "wire_tap"]

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class SeenRequest:
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    status: int
    """What the server answered."""


@dataclass(frozen=True)
class WireTap:
    url: str
    requests: list[SeenRequest] = field(default_factory=list)


@contextmanager
def wire_tap(upstream: str) -> Iterator[WireTap]:
    """A relay on a free loopback port; `.requests` grows with every answered request."""
    target = urlsplit(upstream).netloc

    class Relay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            connection = http.client.HTTPConnection(target, timeout=60)
            connection.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            headers = {name.lower(): value for name, value in self.headers.items()}
            tap.requests.append(SeenRequest(self.command, self.path, headers, body, answer.status))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = relay  # noqa: N815 - named by the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as relay:
        tap = WireTap(f"http://127.0.0.1:{relay.server_address[1]}")
        thread = Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        try:
            yield tap
        finally:
            relay.shutdown()
            thread.join()
