"""The options of `spark.read.format("jetstream")`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from vstream.audit.connector.login import split_address
from vstream.audit.connector.values import ACCESS_FIELDS, PATHS, Access, StreamRef
from vstream.errors import VstreamError
from vstream.formatting import suggest_name
from vstream.topology.units import parse_duration
from vstream.value_class import value_class

_AUTO_VALUE = "auto"
DEFAULT_TASK_ROWS = 250_000
"""Default number of messages in a task."""
_OF_WRITING = frozenset({"stream", "path", "subject", "columns"})
_OF_QUERIES = frozenset({"rows_per_batch", "min_rows_per_batch", "max_batch_delay", "fail_on_data_loss", "start"})
_OF_READING = frozenset({"region", "read_by", "start_seq", "end_seq", "since", "until", "rows_per_task", "pushdown"})
_OF_COLUMNS = frozenset({"headers", "payload"})
_OWN = _OF_WRITING | _OF_QUERIES | _OF_READING | _OF_COLUMNS
_CHECKPOINT = "checkpointlocation"
"""Spark's own option, which it passes to the sink of a streaming query."""
_SECRETS = {
    "password": "password_env or password_file",
    "pass": "password_env or password_file",
    "token": "token_env or token_file",
    "auth_token": "token_env or token_file",
    "seed": "nkey",
    "jwt": "creds",
}
_PROVIDER = "provider"
_OF_CATALOG = frozenset({_PROVIDER, "location", "owner", "comment", "external", "is_managed_location"})
"""Options that Spark adds to a table in its catalog; it also adds each option again as `option.NAME`."""
_OPTION_PREFIX = "option."
_ALIASES = {
    "failondataloss": "fail_on_data_loss",
    "maxoffsetspertrigger": "rows_per_batch",
    "maxtriggerdelay": "max_batch_delay",
    "minoffsetspertrigger": "min_rows_per_batch",
    "startingoffsets": "start",
}
"""Names of options in other Spark sources, in lower case."""
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@value_class
class Options:
    """What to read."""

    access: Access = field(repr=False)
    stream_refs: tuple[StreamRef, ...]
    read_by: str | None
    """`consumer` or `direct`; None: the faster path that each stream allows."""
    subjects: tuple[str, ...]
    columns: tuple[str, ...]
    """Columns of a table or view; empty: the default columns."""
    start_seq: int | None
    end_seq: int | None
    since_ns: int | None
    until_ns: int | None
    rows_per_task: int
    rows_per_batch: int | None
    """Of a streaming query: messages of each stream in one micro-batch."""
    min_rows_per_batch: int | None
    """Of a streaming query: minimum number of new messages, in all streams together, for a micro-batch."""
    max_batch_delay: float
    """Of a streaming query: maximum seconds to wait for that number."""
    fails_on_loss: bool
    """Of a streaming query: whether it stops if messages were removed before it has read them."""
    start: str
    """Of a streaming query: `earliest` or `latest`."""
    starts: Mapping[str, int]
    """Of a streaming query: the first sequence to read, by stream."""
    headers: bool
    payload: bool
    pushdown: bool
    """Whether to accept filters from Spark: see `datasource.FilteringReader`."""


def parse_options(options: Mapping[str, str]) -> Options:
    """Parse the options of a read. Raises VstreamError for an option that is unknown, invalid, or a secret."""
    values = without_catalog_properties(options)
    for name in values:
        _require_known_option(name)
    access = _parse_access(values)
    streams = _parse_streams(values)
    if not streams:
        raise VstreamError("no stream is given", hint='.option("stream", "foo-read-west")')
    if not access.servers and not access.context:
        raise VstreamError("no server is given", hint='.option("servers", "nats://127.0.0.1:4222")')
    region = values.get("region", "")
    starts = _parse_starts(values, streams)
    return Options(
        access=access,
        stream_refs=tuple(StreamRef(stream=stream, region=region, virtual=stream, role="") for stream in streams),
        read_by=_parse_read_by(values),
        subjects=_split_words(values.get("subject", "")),
        columns=_split_words(values.get("columns", "")),
        start_seq=_parse_number(values, "start_seq"),
        end_seq=_parse_number(values, "end_seq"),
        since_ns=_parse_moment(values, "since"),
        until_ns=_parse_moment(values, "until"),
        rows_per_task=_parse_number(values, "rows_per_task") or DEFAULT_TASK_ROWS,
        rows_per_batch=_parse_number(values, "rows_per_batch"),
        min_rows_per_batch=_parse_number(values, "min_rows_per_batch"),
        max_batch_delay=_parse_seconds(values, "max_batch_delay", "15m"),
        fails_on_loss=_parse_flag(values, "fail_on_data_loss", default="true"),
        start="earliest" if starts else _parse_choice(values, "start", ("earliest", "latest"), "earliest"),
        starts=starts,
        headers=_parse_flag(values, "headers"),
        payload=_parse_flag(values, "payload"),
        pushdown=_parse_flag(values, "pushdown"),
    )


@value_class
class WriteOptions:
    """Where rows are written."""

    access: Access = field(repr=False)
    stream_ref: StreamRef
    subject: str | None
    """The subject of all rows; None: they have a column `subject`."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Raises VstreamError as `parse_options`, and for options of a read."""
    values = {name: value for name, value in without_catalog_properties(options).items() if name != _CHECKPOINT}
    for name in values:
        if name in _OWN - _OF_WRITING:
            raise VstreamError(
                f"option `{name}` is only for reading",
                hint=f"options: {', '.join(sorted(_OF_WRITING | ACCESS_FIELDS))}",
            )
    parsed = parse_options(values)
    if len(parsed.stream_refs) != 1:
        raise VstreamError("rows can only be written to one stream", hint='.option("stream", "foo-write-west")')
    return WriteOptions(access=parsed.access, stream_ref=parsed.stream_refs[0], subject=values.get("subject"))


def is_catalog_table(options: Mapping[str, str]) -> bool:
    """Whether *options* are those of `CREATE TABLE … USING jetstream`."""
    return _PROVIDER in options


def without_catalog_properties(options: Mapping[str, str]) -> dict[str, str]:
    """*options* with names in lower case, and without what Spark's catalog adds to them."""
    values = {_ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()}
    if not is_catalog_table(values):
        return values
    return {
        name: value for name, value in values.items() if name not in _OF_CATALOG and not name.startswith(_OPTION_PREFIX)
    }


def _parse_streams(options: Mapping[str, str]) -> tuple[str, ...]:
    """The named streams: from the option `stream`, or from the argument of `load`, which Spark calls `path`."""
    loaded = _split_words(options.get("path", ""))
    named = _split_words(options.get("stream", ""))
    if loaded and named:
        raise VstreamError(
            "`path` and `stream` both name streams: `path` is the argument of `.load(…)`. "
            "To choose how streams are read, set `read_by` to consumer or direct (no longer snapshot)"
        )
    return loaded or named


def _parse_starts(options: Mapping[str, str], streams: Sequence[str]) -> dict[str, int]:
    """The sequence of the first message to read, by stream, where `start` is JSON."""
    text = options.get("start", "").strip()
    if not text.startswith("{"):
        return {}
    try:
        starts = json.loads(text)
    except ValueError as error:
        raise VstreamError(f"option `start` is not JSON: {error}", hint='.option("start", \'{"foo": 101}\')') from None
    for stream, seq in starts.items():
        if stream not in streams:
            raise VstreamError(f"option `start` names stream `{stream}`, which is not read")
        if not isinstance(seq, int) or seq < 1:
            raise VstreamError(
                f"option `start`: the first sequence of `{stream}` must be a number of at least 1, not `{seq}`"
            )
    return dict(starts)


def _parse_read_by(options: Mapping[str, str]) -> str | None:
    value = _parse_choice(options, "read_by", (_AUTO_VALUE, *PATHS), _AUTO_VALUE)
    return None if value == _AUTO_VALUE else value


def _require_known_option(name: str) -> None:
    if name in _SECRETS:
        raise VstreamError(
            f"the secret in option `{name}` would appear in plans and logs",
            hint=f"use {_SECRETS[name]}: see docs/spark-connector.md",
        )
    names = _OWN | ACCESS_FIELDS
    if name not in names:
        hint = suggest_name(name, names) or f"options: {', '.join(sorted(names))}"
        raise VstreamError(f"there is no option `{name}`", hint=hint)


def _parse_access(options: Mapping[str, str]) -> Access:
    servers = _split_words(options.get("servers", ""))
    for url in servers:
        if "@" in split_address(url).netloc:
            raise VstreamError(
                "a password in an address would appear in plans and logs",
                hint="use user with password_env or password_file",
            )
    texts: dict[str, Any] = {
        name: options[name] for name in ACCESS_FIELDS - {"servers", "timeout"} if options.get(name)
    }
    timeout = _parse_number(options, "timeout")
    if timeout:
        texts["timeout"] = float(timeout)
    return Access(servers=servers, **texts)


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parse_number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    try:
        value = int(options[name].replace("_", ""))
    except ValueError:
        value = 0
    if value < 1:
        raise VstreamError(f"option `{name}` must be a number of at least 1, not `{options[name]}`")
    return value


def _parse_seconds(options: Mapping[str, str], name: str, default: str) -> float:
    try:
        return parse_duration(options.get(name, default)) / 10**9
    except ValueError as error:
        raise VstreamError(f"option `{name}`: {error}") from None


def _parse_flag(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    text = options.get(name, default).lower()
    if text not in _FLAGS:
        raise VstreamError(f"option `{name}` must be true or false, not `{text}`")
    return _FLAGS[text]


def _parse_choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = options.get(name, default)
    if value not in choices:
        raise VstreamError(f"option `{name}` must be one of {', '.join(choices)}, not `{value}`")
    return value


def _parse_moment(options: Mapping[str, str], name: str) -> int | None:
    """An ISO 8601 time as nanoseconds since 1970."""
    if name not in options:
        return None
    try:
        moment = datetime.fromisoformat(options[name])
    except ValueError:
        raise VstreamError(
            f"option `{name}` must be a time such as 2026-11-20T17:00:00Z, not `{options[name]}`"
        ) from None
    return to_nanoseconds(moment)


def to_nanoseconds(moment: datetime) -> int:
    """*moment* in nanoseconds since 1970; without a zone, it is UTC."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000
