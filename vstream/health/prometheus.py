"""A status in the text format 0.0.4 of Prometheus, under its rules for names and units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vstream.health.cross_region import CrossRegionUse
from vstream.health.status import PairState, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class _Family:
    """One gauge, or counter, and its samples."""

    name: str
    help: str
    kind: str = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        if value is not None:
            self.samples.append((labels, float(value)))

    def lines(self, topology: str) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            pairs = ",".join(
                f'{key}="{_escape_label(value_text)}"' for key, value_text in {"topology": topology, **labels}.items()
            )
            yield f"{self.name}{{{pairs}}} {value:.15g}"


def render_metrics(topology: str, status: Status | None, uses: Mapping[CrossRegionUse, float] | None = None) -> str:
    """The metrics of *status*; if it is None, that nothing answered. *uses* is None where nobody has listened."""
    up = _Family("vstream_up", "Whether any server answered at the last look.")
    up.add(status is not None)
    families = [up]
    if status is not None:
        families += [*_describe_status(status), *_describe_servers(status), *_describe_streams(status)]
        families += [*_describe_pairs(status), *_describe_beacons(status)]
        families += [] if uses is None else [_count_cross_region(uses)]
    return "\n".join(line for family in families for line in family.lines(topology)) + "\n"


def _count_cross_region(uses: Mapping[CrossRegionUse, float]) -> _Family:
    family = _Family(
        "vstream_client_of_other_region",
        "When a client that is connected in a region last asked about a stream of another; for an hour.",
    )
    for use, at in uses.items():
        who = {"client": use.client, "user": use.user, "host": use.host, "from": use.place}
        family.add(at, **who, stream=use.stream, region=use.region)
    return family


def _escape_label(text: str) -> str:
    """*text*, which a server may have chosen: a terminal must not obey it when `export --once` prints it."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _describe_status(status: Status) -> Iterator[_Family]:
    began = _Family("vstream_look_timestamp_seconds", "When the last look began.")
    began.add(status.at)
    took = _Family("vstream_look_duration_seconds", "How long the last look took.")
    took.add(status.took)
    problems = _Family("vstream_problems", "How many lines of problems `vstream status` would show.")
    problems.add(len(status.problems))
    unknown = _Family("vstream_unknown", "How many lines of what could not be seen `vstream status` would show.")
    unknown.add(len(status.unknown))
    yield from (began, took, problems, unknown)


def _describe_servers(status: Status) -> Iterator[_Family]:
    up = _Family("vstream_server_up", "Whether the server answered on its monitoring port.")
    mapping_ok = _Family(
        "vstream_server_mapping_ok",
        "Whether the server has loaded the topology's mapping rules; absent if that is not known.",
    )
    info = _Family("vstream_server_info", "The version that the server runs.")
    sent = _Family(
        "vstream_gateway_sent_bytes_total", "Bytes of messages that the server has sent to the cluster.", "counter"
    )
    for server in status.servers:
        for cluster, count in (server.gateways or {}).items():
            sent.add(count, region=server.region, server=server.name, to=cluster)
        if server.url is not None:  # of others it is not known
            up.add(server.is_reached, region=server.region, server=server.name)
        mapping_ok.add(status.mappings_ok.get(server.name), region=server.region, server=server.name)
        if server.version:
            info.add(1, region=server.region, server=server.name, version=server.version)
    control = _Family(
        "vstream_region_control_up",
        "Whether new consumers, new streams and changes are possible from the region; absent if that is not known.",
    )
    streams = _Family("vstream_region_streams", "How many virtual streams the region has.")
    works = _Family(
        "vstream_region_working_streams",
        "For how many of them publishing, Direct Get or existing consumers are known to work.",
    )
    for region in status.regions:
        control.add(region.control, region=region.name)
        streams.add(region.publish.of, region=region.name)
        shares = {"publish": region.publish, "direct_get": region.direct_get, "consumers": region.consumers}
        for operation, share in shares.items():
            if share.fails or not share.unknown:
                works.add(share.works, region=region.name, operation=operation)
    yield from (up, mapping_ok, info, sent, control, streams, works)


def _describe_streams(status: Status) -> Iterator[_Family]:
    led = _Family("vstream_stream_led", "Whether the physical stream has a leader.")
    messages = _Family("vstream_stream_messages", "How many messages the physical stream holds.")
    size = _Family("vstream_stream_bytes", "How many bytes the physical stream holds.")
    last = _Family("vstream_stream_last_sequence", "The last sequence of the physical stream.")
    away = _Family("vstream_stream_missing_replicas", "How many of its replicas are away or behind.")
    for stream in status.streams:
        labels = {"stream": stream.virtual, "physical": stream.name, "place": stream.place, "role": stream.role}
        led.add(stream.leader is not None, **labels)
        messages.add(stream.messages, **labels)
        size.add(stream.bytes, **labels)
        last.add(stream.last, **labels)
        if stream.messages is not None:
            away.add(stream.replicas - stream.current, **labels)
    yield from (led, messages, size, last, away)


def _describe_pairs(status: Status) -> Iterator[_Family]:
    pending = _Family("vstream_pair_pending_messages", "How many messages of the origin the reader has still to take.")
    sequence = _Family(
        "vstream_pair_taken_sequence", "Up to where the reader has taken the origin; absent if not known."
    )
    age = _Family("vstream_pair_oldest_pending_seconds", "Since when the oldest of them waits; 0 if there is none.")
    left = _Family(
        "vstream_pair_lossy_in_seconds",
        "Until the origin drops a message that the reader lacks; absent if it does not.",
    )
    retention = _Family(
        "vstream_pair_kept_seconds", "How long the origin keeps a message at present; absent where it keeps all."
    )
    states = _Family("vstream_pair_state", "1 for the state that a pair is in, if that is not ok.")
    for pair in status.pairs:
        labels = {"stream": pair.virtual, "origin": pair.origin_place, "reader": pair.reader_place}
        pending.add(pair.pending, **labels)
        sequence.add(pair.cursor, **labels)
        age.add(pair.age or 0.0, **labels)
        retention.add(pair.retention, **labels)
        # Of what is on its way, nobody wants an alarm.
        left.add(None if pair.state is PairState.OK else pair.lossy_in, **labels)
        if pair.state is not PairState.OK:
            states.add(1, **labels, state=pair.state.value)
    yield from (pending, sequence, age, left, retention, states)


def _describe_beacons(status: Status) -> Iterator[_Family]:
    age = _Family(
        "vstream_beacon_age_seconds", "Age of the newest beacon of the origin in the reader; absent if there is none."
    )
    for sighting in status.beacons:
        age.add(sighting.age, stream=sighting.stream, origin=sighting.origin, reader=sighting.reader)
    yield age
