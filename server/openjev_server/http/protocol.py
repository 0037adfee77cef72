"""uvicorn's HTTP/1.1 protocol where it would leave a client of ours without a proper answer."""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from openjev_server.http.constants import REQUEST_ID_HEADER
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.request_id import new_request_id

__all__ = ["ApiProtocol"]

UPGRADE = b"upgrade"


class ApiProtocol(HttpToolsProtocol):
    """Declines upgrades without losing the request, and answers bytes that are no HTTP as JSON.

    Java's HttpClient (LangChain4j, Spring) offers `Upgrade: h2c` with every cleartext POST. The parser takes what
    follows such a head for another protocol, so the body would be lost: the request is read again without the offer.
    """

    def data_received(self, data: bytes) -> None:
        """Feeds the parser."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        self._expect_more()

    def _expect_more(self) -> None:
        """Bounds the wait for the rest of a head, or of a body that is being discarded, by the keep-alive timeout."""
        between = self.cycle is None or self.cycle.response_complete
        if between and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """Sends a `detail` and a request id, and closes the connection."""
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

    def _should_upgrade(self) -> bool:
        """Makes the base class leave the request alone until the offer is declined."""
        return self._get_upgrade() is not None

    def _decline_upgrade(self, rest: bytes) -> None:
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        lines += [name + b": " + value for name, value in self.headers if name != UPGRADE]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
