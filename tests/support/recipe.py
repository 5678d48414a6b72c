"""The published recipe, as somebody runs it who does not know vstream."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.command import vstream
from tests.support.paths import TESTS
from vstream.apply.mappings import LabMappings
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import MAPPINGS_PATH, Bundle
from vstream.topology.model import Role
from vstream.topology.stream_config import StreamConfig

FIXTURES = TESTS / "fixtures"
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "name": "blog",
    "server_version": "2.10",
    "naming": "blog",
    "regions": {"west": {"servers": 1}, "east": {"servers": 1}},
    "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}}},
}


def as_published(config: StreamConfig) -> StreamConfig:
    """A read stream as the recipe has it: filters, and one transform for all."""
    fields = {key: value for key, value in config.fields.items() if key not in {"metadata", "allow_direct"}}
    sources = [{"name": name, "filter_subject": f"foo.{name.split('-')[-1]}.>"} for name in config.source_names]
    transform = {"src": "foo.*.>", "dest": "foo.>"}
    return StreamConfig(name=config.name, fields={**fields, "sources": sources, "subject_transform": transform})


def with_published_rules(rendered: Bundle) -> Bundle:
    """*rendered* with the recipe's mappings instead of vstream's, but for the region that is not here."""
    lines = (FIXTURES / "blog-mappings.cfg").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if '"central"' not in line)
    artifacts = (
        replace(artifact, text=text) if artifact.path == MAPPINGS_PATH else artifact for artifact in rendered.artifacts
    )
    return replace(rendered, artifacts=tuple(artifacts))


async def run_recipe(file: Path, version: str) -> None:
    """Start the lab `blog` of servers of *version*, with the streams and the rules of the recipe; *file* is its topology."""
    document = json.dumps(DOCUMENT)
    await asyncio.to_thread(file.write_text, document)
    assert (await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", version)).code == 0
    rendered = render_bundle(check_topology(document.encode(), file.name).require(), addresses=list_addresses("blog"))
    async with connect(list_endpoints("blog")["west"], "west") as connection:
        admin = JetStreamAdmin(connection)
        for stream in rendered.streams:
            bare = {key: value for key, value in stream.config.fields.items() if key != "metadata"}
            if stream.role is Role.WRITE:
                config = StreamConfig(name=stream.config.name, fields=bare)
                await ask_until_available(partial(admin.create, config))
        for stream in rendered.streams:
            if stream.role is Role.READ:
                await ask_until_available(partial(admin.create, as_published(stream.config)))
    await LabMappings("blog", with_published_rules(rendered)).ensure_loaded()
