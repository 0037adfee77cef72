"""A real server on a real socket around a fake engine, and a client that checks the form of every answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from app_support import Running, Serve, check_form
from openjev_server.app import create_app
from openjev_server.bundle import ModelBundle, load_bundle, resolve_model
from openjev_server.engine.fake import FakeEngine
from openjev_server.serving import bind, server_for, url_of
from openjev_server.settings import Settings


@pytest.fixture(scope="session")
def bundle() -> ModelBundle:
    return load_bundle(resolve_model("nano"))


@pytest.fixture(scope="session")
def serve(bundle: ModelBundle) -> Serve:
    """`with serve(engine, model=..., setting=...) as running`: a server of its own, stopped at the end."""

    @contextlib.contextmanager
    def serving(engine: FakeEngine | None = None, *, model: ModelBundle = bundle, **changes: Any) -> Iterator[Running]:
        settings = Settings(**{"port": 0, "drain_timeout_s": 5, **changes})
        engine = engine or FakeEngine()
        app = create_app(engine, settings, model)
        listener = bind(settings.host, settings.port)
        server = server_for(app, settings)
        url = url_of(listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with httpx.Client(base_url=url, event_hooks={"response": [check_form]}, timeout=20) as client:
                while not server.started:
                    thread.join(0.01)
                yield Running(url, client, engine, app.state.admission, server)
        finally:
            server.should_exit = True
            thread.join(15)
            listener.close()
        assert not thread.is_alive()

    return serving


@pytest.fixture(scope="module")
def plain(serve: Serve) -> Iterator[Running]:
    """A server with default settings, shared by a module's tests."""
    with serve() as running:
        yield running
