"""`make demo`: README's first example against a server on the embedded checkpoint, through the SDK and through curl.

Runs the code blocks of README.md themselves, so that the text cannot drift from what works.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from live_server import ServerFailed, live_server

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_URL = "http://127.0.0.1:8000"
BLOCK = re.compile(r"<!-- demo: (?P<name>\w+) -->\n```\w+\n(?P<code>.*?)```", re.DOTALL)


def readme_blocks() -> dict[str, str]:
    """README.md's code blocks that are marked `<!-- demo: NAME -->`, by name."""
    return {match["name"]: match["code"] for match in BLOCK.finditer((ROOT / "README.md").read_text())}


def main() -> int:
    started = time.monotonic()
    blocks = readme_blocks()
    with tempfile.TemporaryDirectory() as scratch:
        print("Starting the server on the embedded checkpoint ...", flush=True)
        try:
            with live_server(Path(scratch) / "server.log") as server:
                print(f"ready at {server.url} after {time.monotonic() - started:.1f} s\n\n# Python SDK", flush=True)
                environment = os.environ | {"OPENJEV_BASE_URL": server.url}
                subprocess.run([sys.executable, "-c", blocks["sdk"]], env=environment, check=True)
                print("\n# curl", flush=True)
                if shutil.which("curl") is None:
                    print("(curl is not installed: left out)")
                else:
                    subprocess.run(["bash", "-euc", blocks["curl"].replace(DEFAULT_URL, server.url)], check=True)
                print(flush=True)
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"the example failed with exit status {error.returncode}", file=sys.stderr)
            return 1
    print(f"\nDone in {time.monotonic() - started:.1f} s; the server is stopped.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
