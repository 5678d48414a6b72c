"""Which version each server of a lab runs."""

from __future__ import annotations

import pytest

from tests.support.lab_bundle import topology
from vstream.errors import VstreamError
from vstream.lab.binaries import index_versions


@pytest.mark.parametrize(
    ("stated", "versions"),
    [
        ({}, {}),
        ({"*": "1"}, {"r0-0": "1", "r0-1": "1", "r1-0": "1", "r1-1": "1"}),
        ({"*": "1", "r1": "2", "r1-1": "3"}, {"r0-0": "1", "r0-1": "1", "r1-0": "2", "r1-1": "3"}),
        ({"r1-1": "3"}, {"r1-1": "3"}),
    ],
)
def test_the_version_of_a_server_is_what_is_said_nearest_to_it(
    stated: dict[str, str], versions: dict[str, str]
) -> None:
    assert index_versions(topology(2, 2), stated) == versions


def test_a_name_that_is_neither_is_refused() -> None:
    with pytest.raises(VstreamError, match="no region or server `r2`") as caught:
        index_versions(topology(2, 2), {"r2": "1"})
    assert caught.value.hint == "regions: r0, r1; servers: r0-0, r0-1, r1-0, r1-1"
