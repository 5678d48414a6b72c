"""How rules read stream configurations: any value may be missing or have the wrong type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from vstream.findings import Span
from vstream.lint.workspace import ConsumerFile, StreamFile, StreamRole
from vstream.subjects.algebra import is_subset, overlaps
from vstream.subjects.functions import FUNCTION
from vstream.syntax.document import Json, object_or_empty

ANYTHING = ">"
"""What servers use if a filter or the source of a transform is empty."""
FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")
"""What no name of a stream or consumer contains."""
MAX_NAME_BYTES = 255
MAX_DESCRIPTION_BYTES = 4096
MAX_METADATA_BYTES = 128 << 10
"""In bytes, of all keys and values."""
_CUTOFF = 0.8


class SourceEntry(NamedTuple):
    """One source of a stream, or its mirror, as far as it can be read. *transforms* are pairs of subjects."""

    path: tuple[str | int, ...]
    name: str
    filter_subject: str
    transforms: tuple[tuple[str, str], ...]
    is_external: bool
    """Whether it has another API prefix: its name then has no meaning here."""
    fields: dict[str, Any]

    @property
    def api(self) -> Json:
        """The prefix of that API; None without one."""
        return object_or_empty(self.fields.get("external")).get("api")

    @property
    def patterns(self) -> tuple[str, ...]:
        """The subjects that it copies from the other stream."""
        return tuple(source for source, _ in self.transforms) or (self.filter_subject or ANYTHING,)


def find_long_texts(fields: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The field that is longer than servers take (JSMaxDescriptionLen, JSMaxMetadataLen), the message, and what to do."""
    description, labels = fields.get("description"), fields.get("metadata")
    size = len(_text(description).encode())
    if size > MAX_DESCRIPTION_BYTES:
        yield "description", f"the description has {size:,} bytes, {MAX_DESCRIPTION_BYTES:,} are allowed", "shorten it"
    texts = [*labels.keys(), *map(_text, labels.values())] if isinstance(labels, dict) else []
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_METADATA_BYTES:
        yield "metadata", f"the metadata has {size:,} bytes, {MAX_METADATA_BYTES:,} are allowed", "keep less there"


def read_number(stream: StreamFile, field: str) -> int:
    """A limit, a duration or a count; 0 if it is missing or not a number."""
    return 0 if has_flag(stream, field) else read_integer(stream.config.fields, field)


def read_limit(stream: StreamFile, field: str) -> int | None:
    """A limit; None if there is no limit, which is written as 0 or below."""
    value = read_number(stream, field)
    return value if value > 0 else None


def has_flag(stream: StreamFile, field: str) -> bool:
    """Whether a flag is set."""
    return stream.config.fields.get(field) is True


def read_word(stream: StreamFile, field: str) -> str:
    """A string; empty if it is missing."""
    value = stream.config.fields.get(field)
    return value if isinstance(value, str) else ""


def read_table(stream: StreamFile, field: str) -> Mapping[str, Any]:
    """An object; empty if it is missing."""
    return object_or_empty(stream.config.fields.get(field))


def read_strings(stream: StreamFile, field: str) -> list[str]:
    """The strings of an array."""
    value = stream.config.fields.get(field)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def may_hold(stream: StreamFile, subject: str) -> bool:
    """Whether messages of *subject* are in the stream, as far as its file says."""
    stored = stored_subjects(stream)
    return not stored or any(overlaps(subject, pattern) for pattern in stored)


def stored_subjects(stream: StreamFile) -> list[str]:
    """What the messages of the stream can be stored under; empty where its file does not say."""
    stored = read_strings(stream, "subjects")
    for source in read_sources(stream):
        stored += [FUNCTION.sub("*", destination) for _, destination in source.transforms] or source.patterns
    transform = read_table(stream, "subject_transform")
    renamed, target = str(transform.get("src") or ANYTHING), str(transform.get("dest"))
    if transform.get("dest") and any(overlaps(pattern, renamed) for pattern in stored):
        return [*(pattern for pattern in stored if not is_subset(pattern, renamed)), FUNCTION.sub("*", target)]
    return stored


def read_integer(fields: Mapping[str, Any], name: str) -> int:
    """A field that is a whole number or a flag; 0 if it is missing or something else."""
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def count_replicas(stream: StreamFile) -> int:
    """How many servers hold the stream."""
    return read_number(stream, "num_replicas") or 1


def locate_field(stream: StreamFile, *path: str | int) -> Span:
    """Where the field at *path* is written, or the stream's name if the field is missing."""
    is_written = (*stream.prefix, *path) in stream.source.values
    return stream.locate(*path) if is_written else stream.locate("name")


def read_sources(stream: StreamFile) -> list[SourceEntry]:
    """The sources that are objects with a name, in the order written."""
    listed = stream.config.fields.get("sources")
    items = enumerate(listed) if isinstance(listed, list) else ()
    return [source for index, value in items if (source := _find_source(("sources", index), value)) is not None]


def read_mirror(stream: StreamFile) -> SourceEntry | None:
    """What the stream mirrors, if anything."""
    return _find_source(("mirror",), stream.config.fields.get("mirror"))


def _find_source(path: tuple[str | int, ...], value: Any) -> SourceEntry | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    listed = value.get("subject_transforms")
    transforms = []
    for transform in map(object_or_empty, listed if isinstance(listed, list) else ()):
        if transform:
            transforms.append((_text(transform.get("src")) or ANYTHING, _text(transform.get("dest")) or ANYTHING))
    return SourceEntry(
        path=path,
        name=value["name"],
        filter_subject=_text(value.get("filter_subject")),
        transforms=tuple(transforms),
        is_external=bool(value.get("external")),
        fields=value,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def find_misspelt(name: str, names: list[str]) -> str | None:
    """The one of *names* that *name* is a misspelling of, by one letter; None if there is none."""
    if name in names:
        return None
    close = get_close_matches(name, names, n=1, cutoff=_CUTOFF)
    # `orders-west` beside `orders-east` is another stream, not a misspelt one.
    return next((candidate for candidate in close if _is_misspelt(name, candidate)), None)


def _is_misspelt(name: str, meant: str) -> bool:
    """Whether one letter was left out, added or exchanged, or two were swapped."""
    if sorted(name) == sorted(meant):
        return True
    if len(name) == len(meant):
        differing = [(a, b) for a, b in zip(name, meant, strict=True) if a != b]
        return len(differing) == 1 and all(letter.isalpha() for letter in differing[0])
    longer, shorter = sorted((name, meant), key=len, reverse=True)
    return any(
        longer[:index] + longer[index + 1 :] == shorter and letter.isalpha() for index, letter in enumerate(longer)
    )


class StreamSet:
    """The streams of a workspace by their names, and by the virtual streams that they belong to."""

    def __init__(self, streams: Iterable[StreamFile]) -> None:
        self._by_name: dict[str, list[StreamFile]] = {}
        for stream in streams:
            self._by_name.setdefault(stream.config.name, []).append(stream)

    @property
    def names(self) -> set[str]:
        """Every name."""
        return set(self._by_name)

    def find(self, name: str, near: StreamFile | ConsumerFile) -> StreamFile | None:
        """The stream called *name*; if several environments have it, the one whose file is closest to *near*."""
        candidates = self._by_name.get(name, [])
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        near_parts = _parts(near.file)
        return max(candidates, key=lambda candidate: _common_parts(near_parts, _parts(candidate.file)))

    def sourced_streams(self, stream: StreamFile) -> Iterator[tuple[SourceEntry, StreamFile]]:
        """The sources of *stream* that are in this set, each with its stream."""
        for source in read_sources(stream):
            source_stream = None if source.is_external else self.find(source.name, stream)
            if source_stream is not None:
                yield source, source_stream

    def group_read_streams(self) -> Iterator[list[StreamFile]]:
        """
        The read streams of each virtual stream.

        Streams are left out if a name occurs twice: they belong to several environments, and it is unknown which ones
        belong together.
        """
        groups: dict[tuple[str | None, str], list[StreamFile]] = {}
        for namesakes in self._by_name.values():
            for stream in namesakes:
                if stream.role is StreamRole.READ and stream.virtual is not None:
                    groups.setdefault((stream.config.owner, stream.virtual), []).append(stream)
        for group in groups.values():
            if len({stream.config.name for stream in group}) == len(group):
                yield group


@lru_cache(maxsize=1 << 16)
def _parts(file: str) -> tuple[str, ...]:
    return PurePosixPath(file).parts


def _common_parts(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
