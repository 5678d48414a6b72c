"""Spark clusters that anybody can join are warned of: they get the credentials of the streams."""

from __future__ import annotations

import pytest

from vstream.audit.spark.session import cluster_exposure


@pytest.mark.parametrize(("master", "authenticate"), [("local[2]", None), ("spark://host:7077", "true")])
def test_a_cluster_that_nobody_else_can_join_is_not_warned_of(master: str, authenticate: str | None) -> None:
    assert cluster_exposure(master, authenticate) is None


@pytest.mark.parametrize("authenticate", [None, "false"])
def test_a_cluster_that_asks_nobody_who_it_is_is_warned_of(authenticate: str | None) -> None:
    assert "Spark at spark://host:7077 does not ask who joins it" in str(
        cluster_exposure("spark://host:7077", authenticate)
    )
