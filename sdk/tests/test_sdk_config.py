"""Settings: explicit > OPENJEV_* > TYPESAFE_* > default."""

from __future__ import annotations

import httpx
import pytest
from mock_host import GOOD, Script
from openjev_sdk import Client, UsageError, compat


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("OPENJEV", "TYPESAFE"):
        for name in ("BASE_URL", "API_KEY", "DEFAULT_MODEL"):
            monkeypatch.delenv(f"{prefix}_{name}", raising=False)


def sent(**settings: str) -> httpx.Request:
    script = Script([GOOD])
    with Client(**settings, transport=httpx.MockTransport(script)) as client:  # type: ignore[arg-type]
        client.decide("state", {"q": {"type": "noul", "instructions": "?"}})
    return script.requests[0]


def test_without_settings_it_asks_this_machine_without_a_key() -> None:
    request = sent()
    assert request.url == "http://127.0.0.1:8000/v1/systemone"
    assert "authorization" not in request.headers
    assert b'"model":"jev-latest"' in request.content


@pytest.mark.parametrize("client", [Client, compat.TypeSafeClient])
def test_each_setting_takes_the_first_that_is_not_blank(client: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def config() -> tuple[str, str | None, str]:
        with client(transport=httpx.MockTransport(Script([GOOD]))) as made:
            return made._config.base_url, made._config.api_key, made._config.model

    monkeypatch.setenv("TYPESAFE_BASE_URL", "http://typesafe/")
    monkeypatch.setenv("TYPESAFE_API_KEY", " theirs ")
    monkeypatch.setenv("TYPESAFE_DEFAULT_MODEL", "jev-1.14.0")
    monkeypatch.setenv("OPENJEV_BASE_URL", "   ")
    assert config() == ("http://typesafe", "theirs", "jev-1.14.0")
    monkeypatch.setenv("OPENJEV_BASE_URL", "http://openjev")
    monkeypatch.setenv("OPENJEV_API_KEY", "ours")
    monkeypatch.setenv("OPENJEV_DEFAULT_MODEL", "openjev-nano-1")
    assert config() == ("http://openjev", "ours", "openjev-nano-1")


def test_what_is_passed_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENJEV_BASE_URL", "http://openjev")
    monkeypatch.setenv("OPENJEV_API_KEY", "ours")
    request = sent(base_url="https://explicit/api/v1/", api_key="mine", model="m")
    assert request.url == "https://explicit/api/v1/systemone"
    assert request.headers["authorization"] == "Bearer mine"
    assert b'"model":"m"' in request.content


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "localhost"])
def test_a_base_url_must_be_one(url: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        Client(url)


@pytest.mark.parametrize("key", ["two words", "schlüssel", "new\nline"])
def test_a_key_must_fit_in_a_header(key: str) -> None:
    with pytest.raises(UsageError, match="API key"):
        Client(api_key=key)
    with pytest.raises(compat.TypeSafeError, match="API key"):
        compat.TypeSafeClient(api_key=key)


def test_the_official_client_takes_no_blank_key_and_neither_does_compat() -> None:
    with pytest.raises(compat.TypeSafeError, match="blank"):
        compat.TypeSafeClient(api_key=" ")


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_a_timeout_must_be_positive_and_finite(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        Client(timeout=timeout)


@pytest.mark.parametrize("settings", [{"max_retries": -1}, {"retry_budget": 0.0}])
def test_retry_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Client(**settings)  # type: ignore[arg-type]


def test_a_key_does_not_show() -> None:
    with Client(api_key="hidden", headers={"x-secret": "hidden"}) as client:
        assert "hidden" not in repr(client._config)
