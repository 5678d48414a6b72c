"""What is known of a reader's position without asking for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.doctor.test_examine import healthy
from vstream.health.live.lag import has_taken_all


@pytest.mark.parametrize(("taken", "expected"), [(0, True), (-1, False), (1, False)])
def test_a_reader_that_took_as_many_as_there_were_has_all(taken: int, expected: bool) -> None:
    """Whatever limits have removed since: servers before 2.15 say nothing else."""
    streams = healthy("2.14.6").streams
    reader = streams["foo-read-east"]
    sources = tuple(replace(source, seq=None) for source in reader.sources)
    total = sum(streams[source.stream].last_seq for source in sources)
    reader = replace(reader, sources=sources, messages=0, first_seq=total + 1, last_seq=total + taken)
    assert has_taken_all(reader, streams) is expected
