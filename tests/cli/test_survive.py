from __future__ import annotations

from tests.support.topologies import many_streams
from vstream.cli.views.survive import render_markdown
from vstream.lint.check_topology import check_topology
from vstream.topology.survival import survival_table

REGIONS = "regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}\n"
HEAD = 'version: 1\nname: acme\nserver_version: "2.12"\ndefaults: {write: {max_age: 1h}}\n'
ALIKE = "".join(f"  s{number}: {{subjects: [s{number}.>], write: {{max_age: 1h}}}}\n" for number in range(6))
HOMED = "  prices: {subjects: [prices.>], consistency: homed, home: west}\n"


def markdown(text: str) -> str:
    return render_markdown(survival_table(check_topology(text.encode(), "acme.yaml").require()), None)


def test_streams_that_differ_in_their_names_only_share_a_table() -> None:
    page = markdown(f"{HEAD}{REGIONS}streams:\n{ALIKE}{HOMED}")
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## s0, s1, s2, s3 and 2 more", "## prices"]


def test_a_stream_in_memory_has_a_table_of_its_own() -> None:
    page = markdown(f"{HEAD}{REGIONS}streams:\n{ALIKE}  cache: {{subjects: [cache.>], storage: memory}}\n")
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## s0, s1, s2, s3 and 2 more", "## cache"]
    assert "`cache-write-west` is in memory" in page


def test_many_streams_are_one_table() -> None:
    page = render_markdown(survival_table(check_topology(many_streams(40), "acme.yaml").require()), None)
    assert page.count("## ") == 1
