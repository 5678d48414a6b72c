"""
A lab that the tests of a module share, as new for each of them; and one that a test has for itself.

To start one takes seconds, to empty one a few requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import require_success, vstream
from tests.support.labs import end_all_in, processes_in
from tests.support.probe_lab import until
from vstream.apply.mappings import LabMappings
from vstream.errors import VstreamError
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle


@contextmanager
def shared_lab(directory: Path, text: str, *options: str) -> Iterator[Path]:
    """The topology *text* in a file, while its lab runs in a state directory of its own, started with *options*."""
    state, file = directory / "state", directory / "topology.yaml"
    file.write_text(text)
    name = check_topology(text.encode(), file.name).require().name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        try:
            require_success(vstream("lab", "up", file, *options))
            yield file
        finally:
            vstream("lab", "down", name, "--purge")
            left = end_all_in(state)
    assert left == []


@contextmanager
def own_lab(state: Path, directory: Path, name: str, text: str = "") -> Iterator[Path]:
    """A topology file for lab *name* that a test starts itself, in *state*. It is taken down, and nothing of it is left."""
    file = directory / f"{name}.yaml"
    file.write_text(text)
    yield file
    assert vstream("lab", "down", name, "--purge").code == 0
    assert processes_in(state) == []


def renew(file: Path, text: str, *options: str) -> None:
    """
    Make the lab of `shared_lab` as it was when it had come up with *text* and *options*, which *file* says again.

    Servers that a test has killed are started, its streams and the mappings are gone.
    """
    file.write_text(text)
    topology = check_topology(text.encode(), file.name).require()
    require_success(vstream("lab", "up", file, *options))
    asyncio.run(_delete_streams(topology.name))
    nothing = check_topology(f"{text.partition('streams:')[0]}streams: {{}}\n".encode(), file.name).require()
    asyncio.run(
        LabMappings(topology.name, render_bundle(nothing, addresses=list_addresses(topology.name))).ensure_loaded()
    )


async def _delete_streams(name: str) -> None:
    (region, endpoint), *_ = list_endpoints(name).items()
    async with connect(endpoint, region) as connection:

        async def has_streams() -> str | None:
            try:
                names = (await connection.request_json("$JS.API.STREAM.NAMES"))["streams"] or ()
                for stream in names:
                    await connection.request_json(f"$JS.API.STREAM.DELETE.{stream}")
            except (VstreamError, KeyError) as error:
                return repr(error)  # a server that was started again is not part of JetStream at once
            return f"streams are left: {names}" if names else None

        await until(has_streams)
