"""
What the links between regions are meant to do, and how that is written down.

    STATE/labs/NAME/links/
        links.json     the orders: written by commands, read by the proxy
        answer.json    what the proxy has applied, and the connections that it carries
        proxy.json     which process the proxy is
        proxy.err      what it says, if it fails
        links.lock     held by whoever is changing links.json

The proxy is a process of its own that must start at once: this module imports nothing that is slow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from vstream.value_class import value_class

Direction = tuple[str, str]
"""A link in one direction: the sending and the receiving region."""

FORMAT = 1


class Backend(Enum):
    """What carries the connections between regions."""

    NONE = "none"
    """Nothing: servers dial each other directly, and links cannot be changed."""
    PROXY = "proxy"
    """A proxy in front of each server. Needs no privileges."""


class Cut(Enum):
    """How a link is cut."""

    RESET = "reset"
    """Connections that the sending region dials are reset, existing and new ones: like a firewall that rejects."""
    DROP = "drop"
    """Nothing arrives, and nobody is told: like a pulled cable."""


@value_class
class LinkState:
    """One direction of a link. None leaves a value to the layer below, at last an ideal link."""

    cut: Cut | None = None
    delay: float | None = None
    """Seconds from one region to the other: half a round trip."""
    jitter: float | None = None
    """Maximum extra delay in seconds, evenly distributed."""
    rate: int | None = None
    """Bits per second for all connections together; 0 for no limit."""
    loss: float | None = None
    """Share of packets that are lost: 0 to 1, exclusive."""

    def layer_over(self, below: LinkState) -> LinkState:
        """These values, and those of *below* where this layer has none."""
        values = {name: value for name in _LINK_FIELDS if (value := getattr(self, name)) is not None}
        return LinkState(**{**{name: getattr(below, name) for name in _LINK_FIELDS}, **values})

    @property
    def is_ideal(self) -> bool:
        """Whether bytes pass as if there were no link."""
        return not (self.cut or self.delay or self.jitter or self.rate or self.loss)


_LINK_FIELDS = tuple(entry.name for entry in fields(LinkState))
IDEAL = LinkState()


@value_class
class Front:
    """A port in front of a server: connections to *port* are carried to *target*, in *region*."""

    port: int
    target: int
    region: str


@value_class
class Links:
    """The intended state of all links of a lab."""

    backend: Backend
    servers: Mapping[str, str]
    """The region of each server."""
    fronts: tuple[Front, ...] = ()
    generation: int = 0
    """Number of changes so far."""
    started: Mapping[Direction, LinkState] = field(default_factory=dict)
    """The shape at the start of the lab."""
    base: Mapping[Direction, LinkState] = field(default_factory=dict)
    """The present shape."""
    overlays: Mapping[str, Mapping[Direction, LinkState]] = field(default_factory=dict)
    """Overlays on the shape by name, the latest last."""

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions, in the order of the topology."""
        return tuple(dict.fromkeys(self.servers.values()))

    @property
    def pairs(self) -> tuple[Direction, ...]:
        """Every link in each direction."""
        return tuple((sender, receiver) for sender in self.regions for receiver in self.regions if sender != receiver)

    def state(self, pair: Direction) -> LinkState:
        """The effective state of *pair*: the shape with all overlays."""
        effective = self.base.get(pair, IDEAL)
        for overlay in self.overlays.values():
            effective = overlay.get(pair, IDEAL).layer_over(effective)
        return effective


@value_class
class Answer:
    """What the proxy reports about itself."""

    pid: int
    generation: int
    """The generation of `Links` that is in effect."""
    answered: int
    """Number of answers so far."""
    connections: Mapping[Direction, int]
    """Open connections, by the dialing and the dialed region."""
    refused: int = 0
    """Connections refused because the process is not a server of this lab."""
    failure: str | None = None
    """Why the latest change is not in effect."""


def encode(links: Links) -> str:
    """*links* as text that `decode` reads back."""
    document = {
        "format": FORMAT,
        "backend": links.backend.value,
        "servers": dict(links.servers),
        "fronts": [asdict(front) for front in links.fronts],
        "generation": links.generation,
        "started": list(encode_states(links.started)),
        "base": list(encode_states(links.base)),
        "overlays": [{"name": name, "links": list(encode_states(states))} for name, states in links.overlays.items()],
    }
    return json.dumps(document, indent=1) + "\n"


def decode(text: str) -> Links:
    """The reverse of `encode`. Raises ValueError, KeyError or TypeError for other text."""
    document = json.loads(text)
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']}, this vstream knows {FORMAT}")
    return Links(
        backend=Backend(document["backend"]),
        servers=document["servers"],
        fronts=tuple(Front(**front) for front in document["fronts"]),
        generation=document["generation"],
        started=decode_states(document["started"]),
        base=decode_states(document["base"]),
        overlays={overlay["name"]: decode_states(overlay["links"]) for overlay in document["overlays"]},
    )


def encode_answer(answer: Answer) -> str:
    """*answer* as text that `decode_answer` reads back."""
    connections = [
        {"from": sender, "to": receiver, "open": count} for (sender, receiver), count in answer.connections.items()
    ]
    # Not `asdict`: JSON has no keys that are pairs.
    plain = {entry.name: getattr(answer, entry.name) for entry in fields(answer)}
    return json.dumps({**plain, "connections": connections}) + "\n"


def decode_answer(text: str) -> Answer:
    """The reverse of `encode_answer`. Raises ValueError, KeyError or TypeError for other text."""
    document = json.loads(text)
    connections = {(link["from"], link["to"]): link["open"] for link in document.pop("connections")}
    return Answer(**document, connections=connections)


def replace_file(path: Path, text: str) -> None:
    """Replace the file at *path* atomically. It need not survive a crash of the machine."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def encode_states(states: Mapping[Direction, LinkState]) -> Iterator[Mapping[str, Any]]:
    """*states* as plain JSON data, which `decode_states` reads."""
    for (sender, receiver), state in states.items():
        values = {name: value for name in _LINK_FIELDS if (value := getattr(state, name)) is not None}
        if state.cut is not None:
            values["cut"] = state.cut.value
        yield {"from": sender, "to": receiver, **values}


def decode_states(written: Sequence[Mapping[str, Any]]) -> dict[Direction, LinkState]:
    """The reverse of `encode_states`. Raises ValueError, KeyError or TypeError for other data."""
    states = {}
    for link in written:
        values = {name: value for name, value in link.items() if name not in {"from", "to", "cut"}}
        states[link["from"], link["to"]] = LinkState(cut=Cut(link["cut"]) if "cut" in link else None, **values)
    return states
