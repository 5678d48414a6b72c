"""Small random histories of a virtual stream, with faults of every kind: rows of `messages` and `streams`."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
REGIONS = ("west", "central", "east")
IDENTITIES = ("AAAAAAAA", "zzzzzzzz")


@dataclass
class History:
    messages: list[dict[str, Any]] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)
    planted: list[str] = field(default_factory=list)

    def of(self, stream: str) -> list[dict[str, Any]]:
        return [row for row in self.messages if row["stream"] == stream]

    def stream(self, name: str) -> dict[str, Any]:
        return next(stream for stream in self.streams if stream["stream"] == name)


class Maker:
    """Makes one history. *form* is how headers look; without *wild* it is one where nothing is wrong."""

    def __init__(self, seed: int, virtual: str, *, wild: bool = True) -> None:
        self.random, self.later = Random(seed), Random(seed + 10**6)
        self.virtual = virtual
        self.regions = REGIONS[: self.random.choice((1, 2, 3, 3))]
        self.form = self.random.choice(("2.10", "2.12", "2.15", "short", "ack", "long-ack", "external"))
        self.history = History()
        self.lead = self.random.choice(("", "foo.", "$KV.b."))
        self.wild = wild
        self.path = self.random.choice(("consumer", "consumer", "direct", "capture"))
        self.now = NOW + self.random.choice((20, 1000)) * SECOND

    def make(self) -> History:
        draw = self.random
        keys = draw.choice((1, 2, 5))
        has_ids = draw.random() < 0.5
        start = draw.choice((0, 0, 0, 4090, 10**12))
        written: dict[str, list[dict[str, Any]]] = {}
        identity = draw.choice((None, IDENTITIES[1])) if self.form == "2.15" else None
        spread = draw.choice((10**6, SECOND // 2, 20 * SECOND))
        for region in self.regions:
            name = f"w-{region}"
            time = NOW
            rows = []
            for number in range(draw.choice((0, 1, 3, 6, 12))):
                time += draw.randrange(1, spread)
                key = f"k.{draw.randrange(keys)}"
                rows.append(
                    self._row(name, region, "write", start + number + 1, time, f"_vs.{self.virtual}.{region}.{key}")
                    | {"msg_id": f"{region}-{number}" if has_ids else None, "digest": draw.getrandbits(63)}
                )
            written[region] = rows
            self.history.messages += rows
            last = start + len(rows)
            self._stream(name, region, "write", last, [], identity)
        for region in self.regions:
            self._reader(region, written, start)
        if self.wild:
            self._limits()
            for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
                self._plant()
            self._read_late()
        if draw.random() < 0.15:
            self._count()
        self._drop_unreadable()
        return self.history

    def _row(self, stream: str, region: str, role: str, seq: int, time: int, subject: str) -> dict[str, Any]:
        return {
            "virtual": self.virtual, "stream": stream, "region": region, "role": role, "seq": seq, "time_ns": time,
            "subject": subject, "msg_id": None, "source": None, "ttl": None, "rollup": None, "size": 3,
            "digest": 0,
        }  # fmt: skip

    def _stream(
        self, name: str, region: str, role: str, last: int, sources: list[dict[str, Any]], identity: str | None
    ) -> None:
        self.history.streams.append(
            {
                "virtual": self.virtual, "stream": name, "region": region, "role": role, "first_seq": None,
                "last_seq": last, "messages": None, "num_deleted": None, "snapshot_ns": self.now, "read_at_ns": self.now, "arrivals": 0,
                "server_version": None, "path": self.path, "error": None, "sources": sources, "limits": {},
                "identity": identity, "mirror": None, "transform": None,
            }
        )  # fmt: skip

    def _source(self, row: dict[str, Any], identity: str = IDENTITIES[1]) -> str:
        stream, seq, subject = row["stream"], row["seq"], row["subject"]
        transform = f"_vs.{self.virtual}.{row['region']}.> {self.lead}>"
        return {
            "2.10": f"{stream} {seq} {transform}",
            "2.12": f"{stream} {seq} {transform} {subject}",
            "2.15": f"{stream} {seq} {transform} {subject} {identity}",
            "short": f"{stream} {seq}",
            "ack": f"$JS.ACK.{stream}.consumer.1.{seq}.7.{row['time_ns']}.0",
            "long-ack": f"$JS.ACK._.hash.{stream}.consumer.1.{seq}.7.{row['time_ns']}.0.x",
            "external": f"{stream}:a1B2c3D4 {seq} {transform} {subject}",
        }[self.form]

    def _copy(self, row: dict[str, Any], stream: str, region: str, seq: int, time: int) -> dict[str, Any]:
        subject = self.lead + row["subject"].removeprefix(f"_vs.{self.virtual}.{row['region']}.")
        return row | {
            "stream": stream, "region": region, "role": "read", "seq": seq, "time_ns": time, "subject": subject,
            "source": self._source(row),
        }  # fmt: skip

    def _reader(self, region: str, written: dict[str, list[dict[str, Any]]], start: int) -> None:
        draw = self.random
        queues = [list(rows) for rows in written.values() if rows]
        name, seq, time = f"r-{region}", 0, NOW
        while queues:
            queue = draw.choice(queues)
            row = queue.pop(0)
            queues = [queue for queue in queues if queue]
            seq += 1
            time = max(time, row["time_ns"]) + draw.randrange(1, 1000)
            self.history.messages.append(self._copy(row, name, region, seq, time))
        says_cursor = self.form == "2.15" and draw.random() < 0.8
        sources = [
            {"origin": f"w-{origin}", "last_seq": start + len(rows) if says_cursor else None}
            for origin, rows in written.items()
        ]
        self._stream(name, region, "read", seq, sources, None)

    def _limits(self) -> None:
        draw = self.random
        for stream in self.history.streams:
            stream["limits"] = draw.choice(
                (
                    {}, {}, None, {"max_age": draw.choice((SECOND, 900 * SECOND, 5 * SECOND))}, {"max_msgs": 5},
                    {"max_msgs_per_subject": draw.choice((1, 2))}, {"allow_msg_ttl": 1}, {"retention": 1},
                    {"max_age": 10 * SECOND, "max_bytes": 100}, {"max_msgs_per_subject": 1, "max_age": 2000 * SECOND},
                    {"allow_rollup_hdrs": 1}, {"allow_rollup_hdrs": 1, "max_msgs_per_subject": 3},
                )
            )  # fmt: skip
            window = draw.choice((None, 0, SECOND // 2, 5 * SECOND, 120 * SECOND))
            if window is not None and stream["limits"] is not None:
                stream["limits"] = stream["limits"] | {"duplicate_window": window}

    def _count(self) -> None:
        """A counter: each stream has sums of its own; the last ones are the same where nothing is wrong."""
        for stream in self.history.streams:
            if stream["limits"] is not None:
                stream["limits"] = stream["limits"] | {"allow_msg_counter": 1}
        for row in self.history.messages:
            row["digest"] = self.random.choice((7, 8)) if self.wild else 7

    def _read_late(self) -> None:
        """A stream was read a while after the snapshot: its limits may have removed its oldest messages."""
        limited = []
        for stream in self.history.streams:
            if stream["limits"] is None or stream["limits"].keys() - {"duplicate_window"}:
                limited.append(stream)
        if not limited or self.later.random() < 0.7:
            return
        stream = self.later.choice(limited)
        stream["read_at_ns"] += self.later.choice((1, 10, 40, 1000)) * SECOND
        rows = self.history.of(stream["stream"])
        gone = rows[: self.later.randrange(len(rows) + 1)]
        self.history.messages = [message for message in self.history.messages if message not in gone]
        stream["gone"] = {message["seq"] for message in gone}

    def _plant(self) -> None:
        kinds = [name.removeprefix("_plant_") for name in dir(self) if name.startswith("_plant_")]
        kind = self.random.choice(kinds)
        self.history.planted.append(kind)
        getattr(self, f"_plant_{kind}")()

    def _any(self, role: str | None = None) -> dict[str, Any] | None:
        rows = [row for row in self.history.messages if role in (None, row["role"])]
        return self.random.choice(rows) if rows else None

    def _plant_delete(self) -> None:
        row = self._any()
        if row:
            self.history.messages.remove(row)

    def _plant_time_to_live(self) -> None:
        """In every copy, as servers have it."""
        row = self._any("write")
        if row:
            at, ttl = [row["stream"], str(row["seq"])], self.random.choice(("1", "1s", "15m1s", "2h", "never"))
            for message in self.history.messages:
                if message is row or (message["source"] and message["source"].split(" ")[:2] == at):
                    message["ttl"] = ttl

    def _plant_expired_by_its_own_time(self) -> None:
        row = self._any("write")
        if row:
            at = [row["stream"], str(row["seq"])]
            copies = [
                message
                for message in self.history.messages
                if message["source"] and message["source"].split(" ")[:2] == at
            ]
            for copy in [row, *copies]:
                copy["ttl"] = self.random.choice(("2s", "3h"))
            gone = self.random.sample([row, *copies], self.random.randrange(len(copies) + 1))
            for copy in gone:
                self.history.messages.remove(copy)
                limits = self.history.stream(copy["stream"])
                limits["limits"] = (limits["limits"] or {}) | {"allow_msg_ttl": 1}

    def _plant_deleted_everywhere(self) -> None:
        row = self._any("write")
        if row:
            at = [row["stream"], str(row["seq"])]
            keep = self.random.choice((0, 0, 1))
            copies = [
                message
                for message in self.history.messages
                if message["source"] and message["source"].split(" ")[:2] == at
            ]
            for copy in [row, *copies[keep:]]:
                self.history.messages.remove(copy)
            self.history.stream(row["stream"])["limits"] = {"max_age": self.random.choice((1, 2000)) * SECOND}

    def _plant_purged_early(self) -> None:
        row = self._any("write")
        if row:
            gone = [message for message in self.history.of(row["stream"]) if message["seq"] <= row["seq"]]
            self.history.messages = [message for message in self.history.messages if message not in gone]
            self.history.stream(row["stream"])["limits"] = {"max_age": self.random.choice((100, 2000)) * SECOND}

    def _plant_delete_run(self) -> None:
        row = self._any("read")
        if row:
            length = self.random.randrange(1, 6)
            gone = [
                message
                for message in self.history.of(row["stream"])
                if row["seq"] <= message["seq"] < row["seq"] + length
            ]
            self.history.messages = [message for message in self.history.messages if message not in gone]

    def _plant_never_arrived(self) -> None:
        """Without a hole in the reader's own sequences."""
        row = self._any("read")
        if row:
            self.history.messages.remove(row)
            for message in self.history.of(row["stream"]):
                if message["seq"] > row["seq"]:
                    message["seq"] -= 1
            self.history.stream(row["stream"])["last_seq"] -= 1

    def _plant_twice(self) -> None:
        row = self._any()
        if row:
            self.history.messages.append(dict(row))

    def _plant_put_back(self) -> None:
        """As a repair puts a message in again: at the end, from a stream that is there for a moment."""
        row = self._any("read")
        name, _, rest = (row["source"] or "").partition(" ") if row else ("", "", "")
        if row and name.startswith("w-") and ":" not in name:
            reader, before = self.history.stream(row["stream"]), row["seq"]
            reader["last_seq"] += 1
            row |= {"seq": reader["last_seq"], "time_ns": NOW + 15 * SECOND, "source": f"{name}:RplAb3dE {rest}"}
            if before % 2:
                # Then a limit removes the oldest, also what had come behind it.
                reader["limits"] = {"max_msgs": 5}
                gone = [message for message in self.history.of(row["stream"]) if message["seq"] < before + 4]
                self.history.messages = [message for message in self.history.messages if message not in gone]

    def _plant_duplicates(self) -> None:
        row = self._any("read")
        if row:
            rows = self.history.of(row["stream"])
            last = self.history.stream(row["stream"])
            repeated = [candidate for candidate in rows if candidate["seq"] >= row["seq"]][
                : self.random.randrange(1, 8)
            ]
            for copy in repeated:
                last["last_seq"] += 1
                self.history.messages.append(copy | {"seq": last["last_seq"], "time_ns": rows[-1]["time_ns"] + 5})

    def _plant_swap(self) -> None:
        row = self._any()
        if row:
            message = self.random.choice(self.history.of(row["stream"]))
            row["seq"], message["seq"] = message["seq"], row["seq"]

    def _plant_payload(self) -> None:
        row = self._any()
        if row:
            row["digest"] = self.random.choice((0, 1, -(2**63)))

    def _plant_subject(self) -> None:
        row = self._any()
        if row:
            row["subject"] += ".x"

    def _plant_header(self) -> None:
        row = self._any("read")
        if row:
            row["source"] = self.random.choice(
                (None, "nobody 5", "w-west", "w-west x", "", "w-west 1 2", "$JS.ACK.w-west")
            )

    def _plant_key(self) -> None:
        row = self._any("read")
        if row:
            row["subject"] = "k.0"

    def _plant_rolled_back(self) -> None:
        row = self._any("write")
        if row:
            gone = [message for message in self.history.of(row["stream"]) if message["seq"] >= row["seq"]]
            self.history.messages = [message for message in self.history.messages if message not in gone]
            self.history.stream(row["stream"])["last_seq"] = row["seq"] - 1

    def _plant_reused(self) -> None:
        row = self._any("write")
        if row:
            row["time_ns"] += self.random.choice((0, 500 * SECOND))
            row["digest"] ^= 5
            if self.random.random() < 0.5:
                row["msg_id"] = "another"

    def _plant_expired(self) -> None:
        row = self._any("write")
        if row:
            gone = [message for message in self.history.of(row["stream"]) if message["seq"] <= row["seq"]]
            self.history.messages = [message for message in self.history.messages if message not in gone]
            self.history.stream(row["stream"])["limits"] = {"max_age": 10 * SECOND}

    def _plant_oldest_removed(self) -> None:
        row = self._any("read")
        if row:
            gone = [message for message in self.history.of(row["stream"]) if message["seq"] <= row["seq"]]
            self.history.messages = [message for message in self.history.messages if message not in gone]

    def _plant_behind(self) -> None:
        row = self._any("read")
        if row:
            gone = [message for message in self.history.of(row["stream"]) if message["seq"] >= row["seq"]]
            self.history.messages = [message for message in self.history.messages if message not in gone]
            reader = self.history.stream(row["stream"])
            reader["last_seq"] = row["seq"] - 1
            for source in reader["sources"]:
                if source["last_seq"] is not None and self.random.random() < 0.7:
                    source["last_seq"] = max(0, source["last_seq"] - self.random.randrange(0, 8))

    def _plant_cut_early(self) -> None:
        name = f"w-{self.random.choice(self.regions)}"
        stream = self.history.stream(name)
        stream["snapshot_ns"] = NOW + self.random.choice((1, SECOND, 10 * SECOND))
        keep = self.random.randrange(0, 13)
        gone = [row for row in self.history.of(name) if row["seq"] > stream["last_seq"] - keep]
        self.history.messages = [row for row in self.history.messages if row not in gone]
        stream["last_seq"] = max(0, stream["last_seq"] - keep)

    def _plant_unreadable(self) -> None:
        stream = self.random.choice(self.history.streams)
        stream["error"] = "no answer"
        self.history.messages = [row for row in self.history.messages if row["stream"] != stream["stream"]]

    def _plant_rolled_up(self) -> None:
        row = self._any("read")
        if row:
            at = row["source"].split(" ")[:2] if row["source"] else None
            keys = [
                message
                for message in self.history.messages
                if message["role"] == "read" and message["subject"] == row["subject"]
            ]
            last = {key["stream"]: key["seq"] for key in keys if key["source"] and key["source"].split(" ")[:2] == at}
            self._mark_roll_up(at, "sub")
            gone = [key for key in keys if key["seq"] < last.get(key["stream"], 0)]
            self.history.messages = [message for message in self.history.messages if message not in gone]

    def _mark_roll_up(self, at: list[str] | None, what: str) -> None:
        """Mostly say of a message, and of its copies, that it is a roll-up."""
        if self.random.random() < 0.8:
            for message in self.history.messages:
                copied = message["source"].split(" ")[:2] if message["source"] else None
                if at is not None and at in (copied, [message["stream"], str(message["seq"])]):
                    message["rollup"] = self.random.choice((what, what.upper()))

    def _plant_all_rolled_up(self) -> None:
        row = self._any("read")
        if row and row["source"]:
            at = row["source"].split(" ")[:2]
            self._mark_roll_up(at, "all")
            for reader in [stream for stream in self.history.streams if stream["role"] == "read"]:
                rows = self.history.of(reader["stream"])
                last = [row["seq"] for row in rows if row["source"] and row["source"].split(" ")[:2] == at]
                gone = [row for row in rows if last and row["seq"] < last[0]]
                self.history.messages = [message for message in self.history.messages if message not in gone]
                reader["limits"] = {"allow_rollup_hdrs": 1}

    def _plant_twin(self) -> None:
        row, twin = self._any("read"), self._any("read")
        if row and twin:
            # An empty id is none.
            row["msg_id"] = twin["msg_id"] = self.random.choice([row["msg_id"], row["msg_id"], ""])

    def _plant_lost_to_twin(self) -> None:
        row = self._any("read")
        if row:
            self.history.messages.remove(row)
            message = self.history.of(row["stream"])
            if message:
                self.random.choice(message)["msg_id"] = row["msg_id"] or "id"
            if self.random.random() < 0.6:
                # It never was there: no sequence was given to it.
                self.history.stream(row["stream"])["last_seq"] -= 1
                for copy in message:
                    copy["seq"] -= copy["seq"] > row["seq"]

    def _plant_recreated(self) -> None:
        row = self._any("write")
        if row and self.form == "2.15":
            for message in self.history.messages:
                if (
                    message["role"] == "read"
                    and message["source"]
                    and message["source"].startswith(f"{row['stream']} ")
                ):
                    words = message["source"].split(" ")
                    if len(words) > 5 and int(words[1]) < row["seq"] + 3:
                        message["source"] = " ".join([*words[:5], IDENTITIES[0]])
            if self.random.random() < 0.6:
                # Else it was restored from a backup: what it holds is older than what came from its forerunner.
                for message in self.history.messages:
                    is_copy = (message["source"] or "").startswith(f"{row['stream']} ")
                    if message["stream"] == row["stream"] or (
                        is_copy and not message["source"].endswith(IDENTITIES[0])
                    ):
                        message["time_ns"] += 500 * SECOND

    def _plant_mirror(self) -> None:
        reader = f"r-{self.random.choice(self.regions)}"
        stream = self.history.stream(reader)
        stream["mirror"] = f"w-{self.random.choice(self.regions)}"
        stream["sources"] = []
        for row in self.history.of(reader):
            row["source"] = None

    def _plant_migrated(self) -> None:
        for reader in [stream for stream in self.history.streams if stream["role"] == "read" and stream["sources"]]:
            reader["sources"].append({"origin": "old", "last_seq": self.random.choice((None, 3))})
            for number in self.random.sample(range(1, 5), self.random.randrange(5)):
                reader["last_seq"] += 1
                row = self._row(reader["stream"], reader["region"], "read", reader["last_seq"], self.now, "k.0")
                self.history.messages.append(row | {"source": f"old {number} > > k.0", "digest": number})

    def _drop_unreadable(self) -> None:
        for stream in self.history.streams:
            if stream["error"] is not None:
                self.history.messages = [row for row in self.history.messages if row["stream"] != stream["stream"]]
                stream["first_seq"] = stream["last_seq"] = stream["messages"] = stream["limits"] = None
                stream["sources"] = [source | {"last_seq": None} for source in stream["sources"]]
                continue
            seqs = {row["seq"] for row in self.history.of(stream["stream"])} | stream.pop("gone", set())
            stream["last_seq"] = max([stream["last_seq"], *seqs])
            stream["first_seq"] = min(seqs, default=stream["last_seq"] + 1)
            stream["messages"] = len(seqs)
            stream["num_deleted"] = stream["last_seq"] - stream["first_seq"] + 1 - len(seqs)
