"""The operations of js/conformance.mjs, by nats.js as npm has it: for scripts alone: they need node and npm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.matrix import REGIONS, Cells, heard_in, profile_of
from vstream.lab.endpoints import list_endpoints

DIRECTORY = Path(__file__).parent / "js"
_LIMIT = 600.0


def install() -> str:
    """Install nats.js beside the script, and say which version that is."""
    subprocess.run(
        ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=DIRECTORY, check=True
    )
    package = DIRECTORY / "node_modules" / "@nats-io" / "jetstream" / "package.json"
    return str(json.loads(package.read_text(encoding="utf-8"))["version"])


def run(name: str, places: Sequence[tuple[str, str]], only: Sequence[str] = ()) -> Cells:
    """As `matrix.run`, with the other client."""
    endpoints = list_endpoints(name, "app")
    documents = [
        {
            "stream": model,
            "heard": heard_in(profile_of(name), model),
            "region": region,
            "others": [other_region for other_region in REGIONS if other_region != region],
            "urls": list(endpoints[region].urls),
            "user": endpoints[region].user,
            "password": endpoints[region].password,
            "creds": endpoints[region].creds,
        }
        for model, region in places
    ]
    done = subprocess.run(
        ["node", "conformance.mjs"],
        cwd=DIRECTORY,
        input=json.dumps({"places": documents, "operations": list(only)}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_LIMIT,
    )
    return {(stream, region, group, op): outcome for stream, region, group, op, outcome in json.loads(done.stdout)}
