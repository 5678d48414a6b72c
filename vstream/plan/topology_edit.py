"""What a change of a whole region writes into the topology file, as text: every command reads it from then on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.files import save_output
from vstream.lint.check_topology import check_topology
from vstream.syntax import yaml
from vstream.syntax.document import Document, Json
from vstream.topology.model import Region, Topology
from vstream.value_class import value_class

LOST = "lost"
DRAINED = "drained"


@value_class
class TopologyEdit:
    """
    A topology file, and what it will say.

    Each change returns the edit itself where an earlier run has written it. It raises VstreamError if it must be written by
    hand, and UnknownNameError for an unknown region.
    """

    file: str
    text: str
    topology: Topology
    original: str
    """What the file said when it was read."""
    overlays: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_changed(self) -> bool:
        """Whether the file does not say it yet."""
        return self.text != self.original

    def as_written(self) -> TopologyEdit:
        """The same, once the file says it."""
        return replace(self, original=self.text)

    def save(self) -> None:
        """
        Write it: from then on the file says what is so, and every command continues from there.

        Raises RefusedError where somebody else has changed it meanwhile: nobody has planned both changes together.
        """
        path = Path(self.file)
        if path.is_file() and path.read_bytes().decode("utf-8-sig", "replace") != self.original:
            raise RefusedError(
                f"{self.file} has changed since it was read, and nothing was changed",
                hint="does somebody else change a region? Run this again when that has ended",
            )
        save_output(path, self.text)

    def drain(self, region: str, taker: str | None = None) -> TopologyEdit:
        """*region* is drained, and *taker*, by default the next region, takes its publishes."""
        drained = self._find_takeover_regions()
        if region in drained and taker in {None, drained[region]}:
            return self
        names = [candidate.name for candidate in self.topology.regions]
        left = [name for name in names if name not in {region, *drained}]
        if not left:
            raise RefusedError(f"there is no region besides `{region}`", hint="nothing could take its publishes")
        if taker is not None and taker not in left:
            raise UnknownNameError(f"`{taker}` cannot take its publishes", hint=f"choose one of {', '.join(left)}")
        before = self.remove_key(region, DRAINED) if region in drained else self
        return before.add_key(region, DRAINED, taker or left[0])

    def undo_drain(self, region: str) -> TopologyEdit:
        """*region* is not drained any more: clients there publish to its own write streams again."""
        return self.remove_key(region, DRAINED) if region in self._find_takeover_regions() else self

    def give_up(self, region: str, homes: Mapping[str, str]) -> TopologyEdit:
        """*region* is lost, and each stream of *homes* has its home in the region there."""
        is_lost = any(lost.name == region for lost in self.topology.lost)
        return self if is_lost else self.add_key(region, LOST, homes)

    def take_in(self, region: str) -> TopologyEdit:
        """*region*, which was given up, is one of the topology's again."""
        require_region(self.topology, region)
        is_lost = any(lost.name == region for lost in self.topology.lost)
        return self.remove_key(region, LOST) if is_lost else self

    def _find_takeover_regions(self) -> Mapping[str, str]:
        return {name: by for stream in self.topology.streams for name, by in stream.takeover_regions.items()}

    def add_key(self, region: str, key: str, value: str | Mapping[str, str]) -> TopologyEdit:
        """*region* has *key*."""
        edited = add_region_key(self.text, region, key, value)
        return self._edit(edited, f"write `{key}: {_spell(value)}` into region `{region}` yourself")

    def remove_key(self, region: str, key: str) -> TopologyEdit:
        """*region* has no *key* any more."""
        edited = remove_region_key(self.text, region, key)
        return self._edit(edited, f"take `{key}` out of region `{region}` yourself")

    def _edit(self, edited: str | None, hint: str) -> TopologyEdit:
        if edited is None:
            raise VstreamError(f"{self.file} cannot be changed by vstream", hint=f"{hint}, and run this again")
        return replace(self, text=edited, topology=check_topology(edited.encode(), self.file, self.overlays).require())


def require_region(topology: Topology, name: str) -> Region:
    """The region called *name*, lost or not. Raises UnknownNameError."""
    regions = {region.name: region for region in (*topology.regions, *(lost.region for lost in topology.lost))}
    if name not in regions:
        raise UnknownNameError.of_region(name, regions)
    return regions[name]


def add_region_key(text: str, region: str, key: str, value: str | Mapping[str, str]) -> str | None:
    """The topology *text* with *key* in *region*; None if it must be written by hand, for example behind an alias."""
    document = _parse(text)
    at, path = document.source, ("regions", region)
    if path not in at.values or not isinstance(document.data, dict):
        return None
    start = _find_offset(text, at.values[path].line, at.values[path].column)
    entry = f"{key}: {_spell(value)}"
    if text[start : start + 1] == "{":
        following = text[start + 1 :].lstrip()[:1]
        if following == '"':
            entry = f"{json.dumps(key)}: {json.dumps(value if isinstance(value, str) else dict(sorted(value.items())))}"
        edited = text[: start + 1] + entry + ("" if following == "}" else ", ") + text[start + 1 :]
    else:
        indent = " " * (at.values[path].column - 1)
        line = start - len(indent)
        edited = f"{text[:line]}{indent}{entry}\n{text[line:]}"
    return edited if _parse(edited).data == _with(document.data, region, key, value) else None


def _spell(value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    return f"{{{', '.join(f'{stream}: {home}' for stream, home in sorted(value.items()))}}}"


def remove_region_key(text: str, region: str, key: str) -> str | None:
    """The topology *text* without *key* in *region*; None if that has to be written by hand."""
    document = _parse(text)
    path = ("regions", region, key)
    if path not in document.source.keys or not isinstance(document.data, dict):
        return None
    key_span, value_span = document.source.keys[path], document.source.values[path]
    start = _find_offset(text, key_span.line, key_span.column)
    end = _find_offset(text, value_span.end_line, value_span.end_column)
    before, after = text[:start], text[end:]
    if re.search(r"(^|\n)[ \t]*$", before) and re.match(r"[ \t]*(#[^\n]*)?(\r?\n|$)", after):
        edited = before.rstrip(" \t") + re.sub(r"^[ \t]*(#[^\n]*)?\r?\n?", "", after, count=1)
    elif comma := re.match(r"\s*,[ \t]*", after):
        edited = before + after[comma.end() :]
    else:
        edited = re.sub(r",\s*$", "", before) + after
    return edited if _parse(edited).data == _with(document.data, region, key, None) else None


def _parse(text: str) -> Document:
    return yaml.parse(text.encode(), "topology")


def _with(data: dict[str, Json], region: str, key: str, value: str | Mapping[str, str] | None) -> Json:
    """What the document says with *value* as the region's *key*, or without it."""
    regions = data["regions"]
    assert isinstance(regions, dict)
    settings = regions[region]
    assert isinstance(settings, dict)
    rest = {name: setting for name, setting in settings.items() if name != key}
    if value is not None:
        rest[key] = value if isinstance(value, str) else {**value}
    return {**data, "regions": {**regions, region: rest}}


def _find_offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column - 1
