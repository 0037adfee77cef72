"""README's examples do what README prints, and it names every setting with its default."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from demo import DEFAULT_URL, readme_blocks
from live_server import LiveServer
from openjev_sdk import Choice, Client, Noul
from openjev_server.settings import Settings

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
OUTPUT = re.compile(r"<!-- output: (?P<name>\w+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
PRINTED = {match["name"]: match["text"] for match in OUTPUT.finditer(README)}
BARS = re.compile("[█▉▊▋▌▍▎▏]+")
NUMBER = re.compile(r"\b\d\.\d+\b|@[0-9a-f]+/|/(?:float32|bfloat16)/|/[^/\s]+$", re.MULTILINE)


def shape(text: str) -> str:
    """`text` without what another checkpoint, calibration or arithmetic may change."""
    return NUMBER.sub("#", text)


def test_sdk_example(server: LiveServer) -> None:
    environment = os.environ | {"OPENJEV_BASE_URL": server.url}
    done = subprocess.run(
        [sys.executable, "-c", readme_blocks()["sdk"]], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert shape(done.stdout) == shape(PRINTED["sdk"])


def test_curl_example(server: LiveServer) -> None:
    command = readme_blocks()["curl"].replace(DEFAULT_URL, server.url)
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True)
    assert json.loads(shape(done.stdout).replace("#", "0")) == json.loads(shape(PRINTED["curl"]).replace("#", "0"))


def test_the_official_client_as_the_table_shows_it(server: LiveServer) -> None:
    """With no key in the environment, which it would insist on."""
    row = re.search(r"^\| Python, `typesafe-sdk` \| `(TypeSafeClient\(.*?\))`", README, re.MULTILINE)
    assert row is not None
    code = f"from typesafe_sdk import Noul, TypeSafeClient\nwith {row[1].replace(DEFAULT_URL, server.url)} as client:\n"
    code += '    print(client.system_one("x", {"a": Noul(instructions="Is it?")}).nouls)'
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TYPESAFE_")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("client", ["JavaScript", "Vercel", "LangChain ", "LiteLLM"])
def test_clients_that_insist_on_a_key_are_given_one(client: str) -> None:
    row = re.search(rf"^\| {client}.*$", README, re.MULTILINE)
    assert row is not None
    assert re.search(r'apiKey: "any"|api_key="any"|TYPESAFE_API_KEY=any', row[0])


def test_ask_example() -> None:
    command = readme_blocks()["ask"].replace(".venv/bin/openjev", f"{sys.executable} -m openjev_server.cli")
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in BARS.sub("", done.stdout).splitlines()]
    shown = [line.rstrip() for line in BARS.sub("", PRINTED["ask"]).splitlines()]
    assert [shape(line) for line in lines[: len(shown)]] == [shape(line) for line in shown]


def test_the_miss_that_it_names_is_one(server: LiveServer) -> None:
    """A checkpoint that does better deserves another sentence."""
    found = re.search(r'It also misses: of "(.*?)"', README.replace("\n", " "))
    assert found is not None
    with Client(server.url) as client:
        decision = client.decide(
            found[1],
            {"urgent": Noul("Is it urgent?"), "topic": Choice("What is it about?", ["card", "loan", "other"])},
        )
    assert (decision["urgent"].value, decision["topic"].value) == (False, "other")


def test_more_of_the_sdk_runs(server: LiveServer) -> None:
    code = re.search(r"### More of the SDK\n\n```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    environment = os.environ | {"OPENJEV_BASE_URL": server.url}
    done = subprocess.run([sys.executable, "-c", code[1]], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("NoulAnswer") == 2


def test_every_setting_is_listed() -> None:
    rows = dict(re.findall(r"^\| (`OPENJEV_.*?) \| (.*?) \|", README, re.MULTILINE))
    listed: dict[str, str] = {}
    for names, defaults in rows.items():
        found = re.findall(r"`OPENJEV_(\w+)`", names)
        parts = defaults.split(", ") if len(found) > 1 else [defaults]
        listed |= dict(zip(found, parts, strict=True))
    fields = Settings.model_fields
    assert {name.lower() for name in listed} == set(fields)
    for name, shown in listed.items():
        default = fields[name.lower()].default
        if default not in (None, ()):
            assert shown == f"`{str(default).lower().removesuffix('.0')}`", name
