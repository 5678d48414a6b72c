"""One document laid over another: what differs between environments, in a file of its own."""

from __future__ import annotations

import json

from vstream.findings import Finding, Severity, Span
from vstream.syntax.document import Document, Json, Path, SourceMap


class OverlayMerger:
    """
    Lays a document over another as a JSON Merge Patch (RFC 7396).

    Maps are merged key by key, everything else is replaced, and `null` removes. *values* and *keys* say where
    each path of the result was written, in either file; *keys* also where one was removed. *findings* has what is removed and was not there (VS006).
    """

    def __init__(self, base: SourceMap, overlay: SourceMap) -> None:
        self.values: dict[Path, Span] = dict(base.values)
        self.keys: dict[Path, Span] = dict(base.keys)
        self.findings: list[Finding] = []
        self._base = base
        self._overlay = overlay

    def merge(self, base: Json, overlay: Json, path: Path = ()) -> Json:
        """*overlay* over *base*, which are both at *path*."""
        if not isinstance(base, dict) or not isinstance(overlay, dict):
            self._replace_places(path)
            return overlay
        merged = dict(base)
        for key, value in overlay.items():
            at = (*path, key)
            if value is None:
                self._remove(merged, key, at)
            elif key in merged:
                merged[key] = self.merge(merged[key], value, at)
            else:
                self._replace_places(at)
                merged[key] = value
        return merged

    def _remove(self, merged: dict[str, Json], key: str, at: Path) -> None:
        if key in merged:
            del merged[key]
            self._forget_places(at)
            # Where something is missing now, this is why.
            self.keys[at] = self._overlay.key_span(at)
            return
        self.findings.append(
            Finding(
                code="VS006",
                severity=Severity.ERROR,
                message=f"`{key}: null` removes a key that {self._base.file} does not have",
                where=self._overlay.key_span(at),
                hint="correct the key, or drop the line",
            )
        )

    def _replace_places(self, path: Path) -> None:
        """What is at *path* and below it was written in the overlay."""
        self._forget_places(path)
        depth = len(path)
        self.values |= {at: span for at, span in self._overlay.values.items() if at[:depth] == path}
        self.keys |= {at: span for at, span in self._overlay.keys.items() if at[:depth] == path}

    def _forget_places(self, path: Path) -> None:
        depth = len(path)
        self.values = {at: span for at, span in self.values.items() if at[:depth] != path}
        self.keys = {at: span for at, span in self.keys.items() if at[:depth] != path}


def lay_over(base: Document, overlay: Document) -> Document:
    """
    *overlay* over *base*, as a JSON Merge Patch (RFC 7396): see `OverlayMerger`. Each place is in the file it comes from.

    The text of the result is JSON. Where one of the two cannot be read, data is None.
    """
    problems = (*base.findings, *overlay.findings)
    if not (base.is_readable and overlay.is_readable):
        return Document(data=None, source=base.source, text=base.text, findings=problems)
    merger = OverlayMerger(base.source, overlay.source)
    data = merger.merge(base.data, overlay.data)
    return Document(
        data=data,
        source=SourceMap(base.source.file, merger.values, merger.keys),
        text=json.dumps(data, ensure_ascii=False, indent=2),
        findings=(*problems, *merger.findings),
    )
