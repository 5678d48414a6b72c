"""New configurations for a running lab."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_bundle import render, topology
from tests.support.labs import ignore_progress
from vstream.errors import LabError, ServerError
from vstream.jetstream import monitoring
from vstream.lab import binaries, lifecycle
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.server import NatsServer
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]

GOOD = """mappings: {
  "foo.>": [{destination: "_vs.foo.r0.foo.>", weight: 100%, cluster: c0}]
  "bar.*": "baz.{{wildcard(1)}}"
}
"""


async def rules(url: str) -> Any:
    return (await monitoring.read_account_detail(url)).get("mappings", {})


@pytest.mark.parametrize("version", [None, pytest.param("2.10.26", marks=pytest.mark.versions)])
async def test_new_mappings_are_loaded_and_bad_ones_leave_everything_as_it_was(version: str | None) -> None:
    await lifecycle.up(
        "a", topology(2, 1), render, LabSetup(binary=binaries.find_or_fetch(version)), on_progress=ignore_progress
    )
    urls = [url for endpoint in list_endpoints("a").values() for url in endpoint.monitor]
    assert [await rules(url) for url in urls] == [{}, {}]
    assert [(await monitoring.read_varz(url)).was_reloaded for url in urls] == [False, False]

    reloaded = await lifecycle.reload("a", render(list_addresses("a"), mappings=GOOD))
    assert (reloaded.loaded, reloaded.refused) == (("r0-0", "r1-0"), {})
    assert [(await monitoring.read_varz(url)).was_reloaded for url in urls] == [True, True]
    loaded = await rules(urls[0])
    assert loaded["bar.*"] == [{"subject": "baz.{{wildcard(1)}}", "weight": 100}]
    assert {"subject": "_vs.foo.r0.foo.>", "weight": 100, "cluster": "c0"} in loaded["foo.>"]

    with pytest.raises(LabError, match=r"refuses the configuration of server `r0-0`: .*mappings\.cfg"):
        await lifecycle.reload("a", render(list_addresses("a"), mappings='mappings: { "x": '))
    assert (lab_directory("a").conf / "mappings.cfg").read_text() == GOOD
    assert [await rules(url) for url in urls] == [loaded, loaded]

    await NatsServer(lab_directory("a"), "r1-0").stop()
    reloaded = await lifecycle.reload("a", render(list_addresses("a"), mappings=GOOD))
    assert reloaded.loaded == ("r0-0",)
    assert reloaded.refused == {"r1-0": "server `r1-0` does not run"}
    with pytest.raises(ServerError, match="HTTP status 400"):
        await monitoring.read_account_detail(urls[0], "nope")
    await lifecycle.down("a")


async def test_a_change_that_a_server_cannot_load_while_it_runs_is_reported_in_its_own_words(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    moved = render([replace(address, store_dir="/nowhere") for address in list_addresses("a")])
    reloaded = await lifecycle.reload("a", moved)
    assert reloaded.loaded == ()
    assert "refused to reload" in reloaded.refused["r0-0"]
    await lifecycle.down("a")
