"""
Rules of the kernel's packet filter in the current network namespace, over netlink.

The `nft` program is not on every machine, and three kinds of rules are all that links need. All rules
are replaced at once: no packet is judged by half of them.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 2, 3, 6
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_ERROR = 2
_IPV4 = 2
_NESTED = 0x8000
_HOOK_FORWARD = 2
_ACCEPT = 1
_NETWORK, _TRANSPORT = 1, 2
_EQUAL, _LESS = 0, 2
_TABLE, _CHAIN = b"links\0", b"forward\0"
_PARTS = 1_000_000
_HEADER = 16
_TIMEOUT = 5.0


class Verdict(Enum):
    """What becomes of a packet."""

    DROP = "drop"
    RESET = "reset"
    """It is dropped, and its sender's TCP connection reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Packets from *source* to *target* (IPv4 addresses), and what becomes of them."""

    source: str
    target: str
    verdict: Verdict
    target_port_below: int | None = None
    """Only TCP to lower ports."""
    source_port_below: int | None = None
    """Only TCP from lower ports."""
    share: float = 1.0
    """How many of these packets, picked at random."""


def replace(rules: Iterable[Rule]) -> None:
    """Let the forwarded packets of this namespace be judged by *rules* alone. Raises OSError; then nothing has changed."""
    if sys.platform != "linux":
        raise OSError(f"there is no packet filter of this kind on {sys.platform}")
    policy = _attribute(5, _number(_ACCEPT))
    hook = _nested(4, _attribute(1, _number(_HOOK_FORWARD)) + _attribute(2, _number(0)))
    chain = _attribute(1, _TABLE) + _attribute(3, _CHAIN) + hook + policy + _attribute(7, b"filter\0")
    table = _attribute(1, _TABLE)
    wanted = [
        (_NEW_TABLE, _CREATE, table),  # one that is not there could not be deleted
        (_DELETE_TABLE, 0, table),
        (_NEW_TABLE, _CREATE, table),
        (_NEW_CHAIN, _CREATE, chain),
        *((_NEW_RULE, _CREATE | _APPEND, _rule(rule)) for rule in rules),
    ]
    batch = _message(_BATCH_BEGIN, _REQUEST, 0, b"", family=0, resource=_SUBSYSTEM)
    for sequence, (kind, flags, body) in enumerate(wanted, 1):
        batch += _message(_SUBSYSTEM << 8 | kind, _REQUEST | _ACK | flags, sequence, body)
    batch += _message(_BATCH_END, _REQUEST, 0, b"", family=0, resource=_SUBSYSTEM)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(_TIMEOUT)
        kernel.send(batch)
        _require_acknowledged(kernel, len(wanted))


def _require_acknowledged(kernel: socket.socket, count: int) -> None:
    while count > 0:
        answer = kernel.recv(65536)
        while len(answer) >= _HEADER + 4:
            length, kind = struct.unpack_from("=IH", answer)
            if kind == _ERROR:
                (error,) = struct.unpack_from("=i", answer, _HEADER)
                if error:
                    raise OSError(-error, f"the packet filter refuses: {os.strerror(-error)}")
                count -= 1
            answer = answer[(length + 3) & ~3 :]


def _rule(rule: Rule) -> bytes:
    expressions = _load(_NETWORK, 12, 8) + _compare(
        _EQUAL, socket.inet_aton(rule.source) + socket.inet_aton(rule.target)
    )
    ports = ((0, rule.source_port_below), (2, rule.target_port_below))
    if rule.verdict is Verdict.RESET or any(port is not None for _, port in ports):
        expressions += _expression(b"meta", _attribute(1, _number(1)) + _attribute(2, _number(16)))
        expressions += _compare(_EQUAL, bytes([socket.IPPROTO_TCP]))
    for offset, port in ports:
        if port is not None:
            expressions += _load(_TRANSPORT, offset, 2) + _compare(_LESS, struct.pack("!H", port))
    if rule.share < 1:
        pick = _attribute(1, _number(1)) + _attribute(2, _number(_PARTS)) + _attribute(3, _number(1))
        expressions += _expression(b"numgen", pick)
        # The kernel counts in its own byte order, and compares in the network's.
        swap = [_attribute(place, _number(value)) for place, value in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4))]
        expressions += _expression(b"byteorder", b"".join(swap))
        expressions += _compare(_LESS, struct.pack("!I", round(rule.share * _PARTS)))
    if rule.verdict is Verdict.DROP:
        dropped = _nested(2, _nested(2, _attribute(1, _number(0))))
        expressions += _expression(b"immediate", _attribute(1, _number(0)) + dropped)
    else:
        expressions += _expression(b"reject", _attribute(1, _number(1)) + _attribute(2, b"\0"))
    return _attribute(1, _TABLE) + _attribute(2, _CHAIN) + _nested(4, expressions)


def _load(base: int, offset: int, length: int) -> bytes:
    """The expression that puts *length* bytes of a header into the first register."""
    return _expression(
        b"payload",
        b"".join(_attribute(place, _number(value)) for place, value in enumerate((1, base, offset, length), 1)),
    )


def _compare(operation: int, value: bytes) -> bytes:
    """The expression that goes on only if the first register compares with *value*."""
    data = _nested(3, _attribute(1, value))
    return _expression(b"cmp", _attribute(1, _number(1)) + _attribute(2, _number(operation)) + data)


def _expression(name: bytes, data: bytes) -> bytes:
    return _nested(1, _attribute(1, name + b"\0") + _nested(2, data))


def _message(kind: int, flags: int, sequence: int, body: bytes, *, family: int = _IPV4, resource: int = 0) -> bytes:
    payload = struct.pack("!BBH", family, 0, resource) + body
    return struct.pack("=IHHII", _HEADER + len(payload), kind, flags, sequence, 0) + payload


def _number(value: int) -> bytes:
    return struct.pack("!I", value)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | _NESTED, value)
