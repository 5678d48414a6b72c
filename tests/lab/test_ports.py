"""The choice of ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.lab_bundle import topology
from vstream.errors import LabError
from vstream.lab import ports
from vstream.lab.add_regions import extend_record
from vstream.lab.binaries import Program
from vstream.lab.links.state import Backend
from vstream.lab.state import LabDirectory, LabRecord
from vstream.topology.server_address import LAST_PORT

DIRECTORY = LabDirectory("x", Path("/state/labs/x"))


@pytest.fixture
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: True)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((ports.HOST, 0))
        listening.listen(1)
        yield listening


def test_the_first_lab_starts_at_14000(all_free: None) -> None:
    assert ports.choose_block(9) == 14000


def test_ports_of_other_labs_are_left_to_them(all_free: None) -> None:
    assert ports.choose_block(9, reserved={14003}) == 14100


def test_a_lab_with_many_servers_takes_several_blocks(all_free: None) -> None:
    assert ports.choose_block(30, reserved={14110}) == 14200


def test_fronts_of_links_take_ports_too(all_free: None) -> None:
    assert ports.choose_block(20, fronts=20, reserved={14099}) == 14100


def test_a_retry_skips_blocks_of_ports(all_free: None) -> None:
    assert ports.choose_block(9, reserved={14100}, skip=2) == 14300


def test_a_port_that_somebody_listens_on_moves_the_whole_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != 14035)
    assert ports.choose_block(9) == 14100
    assert ports.choose_block(8) == 14000


def test_no_port_of_the_ephemeral_range_is_ever_chosen(all_free: None) -> None:
    assert ports.choose_block(1, reserved=range(14000, 32700)) == 32700
    assert ports.choose_block(17, reserved=range(14000, 32700)) + 17 * 4 == LAST_PORT + 1
    with pytest.raises(LabError, match="no 72 consecutive ports are free between 14000 and 32767"):
        ports.choose_block(18, reserved=range(14000, 32700))


def test_a_listened_port_is_not_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not ports.is_free(port)
    listener.close()
    assert ports.is_free(port)


def test_each_server_gets_four_ports_of_its_own_on_loopback() -> None:
    addresses = ports.allocate(topology(2, 2).seats, 14000, DIRECTORY)
    assert list(ports.server_ports(addresses[0])) == [14000, 14001, 14002, 14003]
    assert list(range(14000, 14016)) == [port for address in addresses for port in ports.server_ports(address)]
    assert {"127.0.0.1"} == {address.host for address in addresses}
    assert [address.server.name for address in addresses] == ["r0-0", "r0-1", "r1-0", "r1-1"]
    assert addresses[3].store_dir == "/state/labs/x/data/r1-1"
    assert addresses[3].log_file == "/state/labs/x/log/r1-1.log"


@pytest.mark.parametrize(("busy", "first"), [(None, 14002), (14003, 14100)])
def test_servers_that_come_back_are_where_they_were_and_what_they_were(
    monkeypatch: pytest.MonkeyPatch, busy: int | None, first: int
) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != busy)
    whole = topology(3, 1)
    gone, *staying = ports.allocate(whole.seats, 14002, DIRECTORY)
    programs = {name: Program(Path("/bin/nats-server"), "2.12.8") for name in ("r0-0", "r1-0", "r2-0")}
    record = LabRecord(topology="test", servers=tuple(staying), programs=programs, removed=(gone,))
    grown = extend_record(DIRECTORY, record, whole, programs, backend=Backend.NONE, reserved=())
    assert [address.server.name for address in grown.servers] == ["r0-0", "r1-0", "r2-0"]
    assert (grown.servers[0].client, grown.removed, grown.programs) == (first, (), programs)
