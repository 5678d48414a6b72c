"""What a connection takes from a nats CLI context, and what it must not tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vstream.errors import NotReachableError
from vstream.jetstream.connection import connect, connection_options, resolve_context
from vstream.model.topology import Endpoint

Saved = Callable[..., Endpoint]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """Saves a nats CLI context and gives the endpoint that it stands for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "nats" / "context"
    directory.mkdir(parents=True)

    def save(**fields: str) -> Endpoint:
        (directory / "it.json").write_text(json.dumps({"url": "nats://127.0.0.1:1", **fields}))
        return resolve_context(Endpoint(context="it"))

    return save


def test_a_contexts_secrets_are_used(saved: Saved) -> None:
    assert connection_options(saved(token="s3cret"), "west") == {"token": "s3cret"}
    assert connection_options(saved(user="u", password="p"), "west") == {"user": "u", "password": "p"}
    # The nats CLI connects with an empty password then.
    assert connection_options(saved(user="u"), "west") == {"user": "u", "password": ""}
    assert "s3cret" not in repr(saved(token="s3cret", password="s3cret"))


async def test_no_secret_of_an_address_is_in_an_error(saved: Saved) -> None:
    endpoint = saved(url="nats://u:s3cret@127.0.0.1:1,127.0.0.1:2,tok@127.0.0.1:3")
    with pytest.raises(NotReachableError) as caught:
        async with connect(endpoint, "west"):
            pass
    assert "nats://127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3" in caught.value.message
    assert "s3cret" not in caught.value.message
    assert "tok@" not in caught.value.message
