"""uvicorn's HTTP/1.1 protocol, with our error body where no request could be parsed."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from openjev_server.http.constants import REQUEST_ID_HEADER
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.request_id import new_request_id

__all__ = ["JsonErrorProtocol"]


class JsonErrorProtocol(HttpToolsProtocol):
    """Answers bytes that are no HTTP with a JSON 400 that has a request id, like every other error."""

    def send_400_response(self, msg: str) -> None:
        """Sends the answer and closes the connection."""
        body = to_json_bytes({"detail": msg})
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (REQUEST_ID_HEADER.encode(), new_request_id().encode()),
            (b"connection", b"close"),
        ]
        lines = [STATUS_LINE[400], *(name + b": " + value + b"\r\n" for name, value in headers), b"\r\n", body]
        self.transport.write(b"".join(lines))
        self.transport.close()
