"""What docker does fits what the server needs."""

import re
from pathlib import Path

from openjev_server.serving import GRACE_S
from openjev_server.settings import Settings

COMPOSE = (Path(__file__).resolve().parent.parent / "docker" / "compose.yaml").read_text()


def test_docker_waits_longer_than_the_server_drains() -> None:
    """By default docker kills ten seconds after SIGTERM."""
    found = re.search(r"^ {4}stop_grace_period: (\d+)s\b", COMPOSE, re.MULTILINE)
    assert found is not None
    default = Settings.model_fields["drain_timeout_s"].default
    assert int(found[1]) > default + 2 * GRACE_S
