"""Settings, keys, exposure, model names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.auth import bearer_token, is_accepted, parse_api_keys
from openjev_server.bundle import ModelBundle, ModelNotFound, load_bundle, model_id, resolve_model
from openjev_server.lengths import surely_longer
from openjev_server.serving import CannotServe, bind, check_exposure
from openjev_server.settings import Settings, TokenLimits, is_loopback
from pydantic import ValidationError

SECRET = "ts_secret-value"


def settings_of(**values: Any) -> Settings:
    """Settings from the strings that an environment would give."""
    return Settings(**values)


def test_environment_and_explicit_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENJEV_STEPS", "4")
    monkeypatch.setenv("OPENJEV_LAYOUT", "  ")
    monkeypatch.setenv("OPENJEV_API_KEYS", "")
    monkeypatch.setenv("OPENJEV_CORS_ORIGINS", "http://a.test, http://b.test,")
    settings = Settings()
    assert (settings.steps, settings.layout, settings.api_keys) == (4, "isolated", ())
    assert settings.cors_origins == ("http://a.test", "http://b.test")
    assert Settings(steps=1).steps == 1


@pytest.mark.parametrize(
    ("name", "value"), [("STEPS", "9"), ("DECIMALS", "1"), ("PORT", "x"), ("UNKNOWN_FIELDS", "keep")]
)
def test_bad_values_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"OPENJEV_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().steps = 3


def test_keys_are_never_shown() -> None:
    settings = settings_of(api_keys=f"me={SECRET},{SECRET}2")
    assert SECRET not in repr(settings) + str(settings) + repr(settings.api_keys) + repr(settings.model_dump())
    with pytest.raises(ValidationError) as error:
        settings_of(api_keys=f"me={SECRET} with a space")
    assert SECRET not in str(error.value)


def test_forms_of_a_key() -> None:
    digest = hashlib.sha256(b"hashed").hexdigest()
    keys = parse_api_keys(f"a=plain, b=sha256:{digest.upper()},bare,c=abc==,a/b=c,")
    assert [key.name for key in keys] == ["a", "b", "key-3", "c", "key-5"]
    assert all(is_accepted(token, keys) for token in ("plain", "hashed", "bare", "abc==", "a/b=c"))
    assert not any(is_accepted(token, keys) for token in ("", "a", "a=plain", digest, "b", "abc"))


@pytest.mark.parametrize("text", ["a=sha256:12", "a=sha256:" + "g" * 64, "a=b c", "\u00e9"])
def test_malformed_keys(text: str) -> None:
    with pytest.raises(ValueError, match="API key 2"):
        parse_api_keys("good," + text)


@pytest.mark.parametrize("text", ["alice=", "alice==", "key=$", "=key", "=", "==", "a/b+c="])
def test_what_an_unset_variable_leaves_of_a_key_is_refused(text: str) -> None:
    """`alice=$KEY` without KEY must not accept `Bearer alice=`."""
    text = text.replace("$", "")
    for keys in (text, f"good,{text}", f"{text},good"):
        with pytest.raises(ValueError, match=r"API key \d: empty (key|name)"):
            parse_api_keys(keys)


@pytest.mark.parametrize("text", [",", " , ", ",,"])
def test_a_list_of_nothing_is_not_an_open_server(text: str) -> None:
    with pytest.raises(ValueError, match="every entry is empty"):
        parse_api_keys(text)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer  ", None),
        ("Basic x", None),
        ("bearer x", "x"),
        ("Bearer  x ", "x"),
    ],
)
def test_bearer_tokens(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "127.0.0.1.example.org", "example.org"])
def test_other_addresses_do(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(CannotServe, match="OPENJEV_API_KEYS"):
        check_exposure(Settings(host=host))
    check_exposure(settings_of(host=host, api_keys=SECRET))
    check_exposure(Settings(host=host, allow_unauthenticated=True))


def test_a_taken_port_is_one_clear_sentence() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CannotServe, match=f"Cannot listen on 127.0.0.1:{port}"):
            bind("127.0.0.1", port)


def test_token_limits_follow_the_device() -> None:
    assert Settings().token_limits("cpu") == TokenLimits(8192, 8192)
    assert Settings().token_limits("cuda:1") == TokenLimits(65536, 32768)
    assert Settings(max_total_tokens=5).token_limits("cpu") == TokenLimits(5, 8192)


def test_model_names(tmp_path: Path) -> None:
    assert model_id(resolve_model("nano")) == "openjev-nano-1"
    directory = tmp_path / "my-model"
    directory.mkdir()
    assert model_id(resolve_model(str(directory))) == "openjev-my-model"
    assert model_id(tmp_path / "models--owner--some-model" / "snapshots" / "abc123") == "openjev-some-model"
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        load_bundle(directory)
    with pytest.raises(ModelNotFound, match="neither"):
        resolve_model("no such model")
    with pytest.raises(ModelNotFound, match="unknown template"):
        load_bundle(resolve_model("nano"), template="none-1")


@given(st.text(max_size=200), st.integers(1, 30), st.integers(0, 2000))
def test_a_text_within_its_limit_is_never_called_too_long(
    bundle: ModelBundle, text: str, repeat: int, extra: int
) -> None:
    long = text * repeat
    assert not surely_longer(bundle.tokenizer, [long], len(bundle.tokenizer.encode(long)) + extra)


def test_a_much_too_long_text_is_seen_early(bundle: ModelBundle) -> None:
    assert surely_longer(bundle.tokenizer, ["short", "lorem ipsum " * 1_000_000], 8192)
    assert not surely_longer(bundle.tokenizer, [("\n" + " " * 48) * 8000], 8192)
