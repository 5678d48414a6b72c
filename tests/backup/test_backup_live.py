"""`vstream backup take` under load, and `vstream backup restore` onto servers that have nothing, both killed on the way."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support.backups import (
    DIES_BETWEEN,
    DIES_LAST,
    DIES_LATER,
    NAME,
    REGIONS,
    STOPS_BETWEEN,
    backed_up,
    command,
    document,
    goes_on,
    killed_after,
    killed_before_the_end,
    stopped_command,
)
from tests.support.publish_load import Load, compare, under_load
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]

FOO = "  foo: {subjects: [foo.>], write: {max_age: 1h}, consumers: {reader: {}}}\n"
MODELS = (
    "stretch: {}\nstreams:\n"
    + FOO
    + "  ord: {subjects: [ord.>], consistency: ordered, write: {max_age: 1h}, consumers: {reader: {}}}\n"
    "  str: {subjects: [str.>], consistency: stretch, consumers: {reader: {}}}\n"
    "  hom: {subjects: [hom.>], consistency: homed, home: west, consumers: {reader: {}}}\n"
)


async def publish_everywhere(stream: str) -> Load:
    """What clients of all regions have published into *stream*, all of it acknowledged."""
    load = Load(50, prefix=stream)
    async with under_load(load, list_client_endpoints(NAME)):
        await load.wait_for_acknowledged(20)
    assert not load.unknown
    return load


async def start_again(file: Path, *options: str) -> None:
    await command("lab", "down", NAME, "--purge")
    await command("lab", "up", file, *options)


async def test_a_backup_under_load_is_restored_by_a_command_that_is_killed(tmp_path: Path) -> None:
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    file.write_text(document(1, f"streams:\n{FOO}"))
    await command("lab", "up", file, "--links", "none")
    await command("apply", file, "--yes")
    load = await backed_up(file, directory, 100)
    assert "exist" in await command("backup", "restore", directory, file, "--yes", code=1)
    await start_again(file, "--links", "none")
    assert "Nothing was changed" in await command("backup", "restore", directory)
    shutil.copytree(directory, tmp_path / "copy")
    with stopped_command("backup", "restore", tmp_path / "copy", file, "--yes") as late:
        await killed_before_the_end("backup", "restore", directory, file, "--yes")
        await killed_before_the_end("backup", "restore", directory, file, "--yes", program=DIES_LATER)
        # Streams that do not source yet would begin again with the first message.
        assert "being restored" in await command("apply", file, "--yes", code=1)
        done = json.loads(await command("backup", "restore", directory, file, "--yes", "--format", "json"))
        assert done["done"], done
        # Who began at the same time from a copy of the backup touches nothing that clients may use again.
        late.send_signal(signal.SIGCONT)
        _, error = await asyncio.to_thread(late.communicate, timeout=60)
    assert late.returncode == 1, error
    assert "meanwhile" in error
    await goes_on(file, directory, load)
    await command("lab", "down", NAME, "--purge")


async def test_what_no_reader_had_and_has_expired_since_is_restored_everywhere(tmp_path: Path) -> None:
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    limits = "write: {max_age: 10s}, read: {max_age: 1d}"
    file.write_text(
        document(
            1,
            f"stretch: {{}}\nstreams:\n  foo: {{subjects: [foo.>], {limits}}}\n"
            f"  ord: {{subjects: [ord.>], consistency: ordered, {limits}}}\n",
        )
    )
    await command("lab", "up", file, "--links", "none")
    await command("apply", file, "--yes")
    with stopped_command("backup", "take", directory, file, program=STOPS_BETWEEN) as taking:
        loads = {stream: await publish_everywhere(stream) for stream in ("foo", "ord")}
        expired = time.monotonic() + 10
        taking.send_signal(signal.SIGCONT)
        _, error = await asyncio.to_thread(taking.communicate, timeout=60)
    assert taking.returncode == 0, error
    await start_again(file, "--links", "none")
    while time.monotonic() < expired:
        await asyncio.sleep(0.2)
    await killed_before_the_end("backup", "restore", directory, file, "--yes", program=DIES_LAST)
    await command("backup", "restore", directory, file, "--yes")
    for stream, load in loads.items():
        for region in REGIONS:
            assert await compare(NAME, region, f"{stream}-read-{region}", load) == ([], [], []), (stream, region)
    await command("plan", file, "--detailed-exitcode")
    await command("lab", "down", NAME, "--purge")


async def test_what_clients_do_between_two_restores_stays_done(tmp_path: Path) -> None:
    """They publish, and delete a consumer that the backup has."""
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    homed = "hom: {subjects: [hom.>], consistency: homed, home: west, consumers: {reader: {}}}"
    file.write_text(document(1, f"streams:\n  {homed}\n{FOO}"))
    await command("lab", "up", file, "--links", "none")
    await command("apply", file, "--yes")
    await command("backup", "take", directory, file)
    await start_again(file, "--links", "none")
    await killed_before_the_end("backup", "restore", directory, file, "--yes", program=DIES_BETWEEN)
    async with connect(list_client_endpoints(NAME)["west"], "west") as client:
        published = await client.request_json("hom.1", {})
    assert published.get("seq") == 1, published
    async with connect(list_endpoints(NAME)["west"], "west") as connection:
        admin = JetStreamAdmin(connection)
        await admin.delete_consumer((await admin.consumer("hom", "reader")).config)
        await command("backup", "restore", directory, file, "--yes")
        assert (await admin.info("hom"))["state"]["messages"] == 1
    await command("lab", "down", NAME, "--purge")


async def test_a_backup_of_newer_servers_is_refused_before_anything_is_restored(tmp_path: Path) -> None:
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    file.write_text(document(1, f"streams:\n{FOO}"))
    await command("lab", "up", file, "--links", "none", "--server-version", "2.15.1")
    await command("apply", file, "--yes")
    await command("backup", "take", directory, file)
    await start_again(file, "--links", "none", "--server-version", "2.12.8")
    empty = await command("plan", file)
    for options in ((), ("--yes",)):
        refused = await command("backup", "restore", directory, file, *options, code=1)
        assert "of servers 2.15, and region" in refused
    assert await command("plan", file) == empty
    await command("lab", "down", NAME, "--purge")


async def test_a_backup_with_more_replicas_than_servers_is_refused_before_anything_is_restored(tmp_path: Path) -> None:
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    file.write_text(document(3, f"streams:\n{FOO}"))
    await command("lab", "up", file, "--links", "none")
    await command("apply", file, "--yes")
    await command("backup", "take", directory, file)
    await command("lab", "down", NAME, "--purge")
    file.write_text(document(1, f"streams:\n{FOO}"))
    await command("lab", "up", file, "--links", "none")
    for options in ((), ("--yes",)):
        refused = await command("backup", "restore", directory, file, *options, code=1)
        assert "has 3 replicas, and cluster" in refused
    await command("lab", "down", NAME, "--purge")


@pytest.mark.night
@pytest.mark.spark
@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_all_models_on_three_servers_a_region_and_their_audits(version: str, tmp_path: Path) -> None:
    options = ("--server-version", version)
    file, directory = tmp_path / "topology.yaml", tmp_path / "backup"
    file.write_text(document(3, MODELS))
    await command("lab", "up", file, *options)
    await command("apply", file, "--yes")
    models = {stream: await publish_everywhere(stream) for stream in ("ord", "str", "hom")}
    load = await backed_up(file, directory, 200, killed=(1.2, 2.0, 3.0))
    assert "PASS" in await command("audit", directory)
    await start_again(file, *options)
    kills = [
        await killed_after(seconds, "backup", "restore", directory, file, "--yes") for seconds in (1.2, 1.6, 2.5, 4, 6)
    ]
    assert any(kills)
    await command("backup", "restore", directory, file, "--yes")
    await goes_on(file, directory, load)
    for stream, before in models.items():
        assert await compare(NAME, "east", f"{stream}-read-east", before) == ([], [], []), stream
    assert "PASS" in await command("audit", file)
    await command("lab", "down", NAME, "--purge")
