"""
An audit in plain Python: the same questions as vstream.audit, asked of one virtual stream, message by message.

No digests, no buckets, no Spark: everything is in dictionaries.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

SKEW = 1_000_000_000
BUCKET = 4096
MINUTE = 60 * SKEW
LIMITS = {"max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "allow_msg_ttl", "allow_rollup_hdrs", "retention"}
MISSING = {"lost-prefix", "lost-middle", "lost-tail", "expired", "late", "displaced"}
REPLAY = re.compile(":Rpl[0-9A-Za-z]{5}$")
EXTERNAL = re.compile("(:[0-9A-Za-z]{8})?(:C=[0-9A-Za-z]{8})?$")


class Difference(NamedTuple):
    kind: str
    stream: str
    origin: str | None
    former: str
    origin_seq: int | None
    seq: int | None
    number: int


@dataclass
class Copy:
    stream: str
    seq: int
    time: int
    digest: int
    msg_id: str | None
    key: str | None
    ttl: int | None = None
    origin: str | None = None
    former: str = ""
    origin_seq: int = 0
    sent: str | None = None
    is_replay: bool = False
    total: int | None = None
    """Of a counter: what its payload is, which no other stream has."""
    rolls_up: str | None = None


def header(source: str) -> dict[str, Any] | None:
    if source.startswith("$JS.ACK."):
        tokens = source.split(".")
        shift = 2 if len(tokens) >= 11 else 0
        if len(tokens) < 6 + shift or not re.fullmatch("[0-9]+", tokens[5 + shift]):
            return None
        return {"stream": tokens[2 + shift], "seq": int(tokens[5 + shift])}
    words = source.split(" ")
    if (len(words) != 2 and len(words) < 4) or not re.fullmatch("[0-9]+", words[1]):
        return None
    keys = ("stream", "seq", "filters", "destinations", "subject", "identity")
    fields: dict[str, Any] = dict(zip(keys, words, strict=False))
    fields["seq"] = int(words[1])
    fields["stream"] = EXTERNAL.sub("", words[0])
    if REPLAY.search(words[0]):
        fields["is_replay"] = True
        # It is that of a stream that is gone.
        fields.pop("identity", None)
    return fields


def through(subject: str, filters: str, destinations: str) -> str | None:
    """*subject* as a source's transforms leave it; only `>` at the end, and no other wildcard."""
    for pattern, destination in zip(filters.split("\f"), destinations.split("\f"), strict=True):
        prefix = pattern.removesuffix(">")
        if subject.startswith(prefix) and len(subject) > len(prefix):
            return destination.removesuffix(">") + subject.removeprefix(prefix)
    return None


class Audit:
    def __init__(self, messages: list[dict[str, Any]], streams: list[dict[str, Any]]) -> None:
        self.streams = {stream["stream"]: stream for stream in streams}
        self.origins: dict[str, dict[str, Any]] = {
            name: stream for name, stream in self.streams.items() if stream["role"] in {"write", "origin"}
        }
        named = {source["origin"] for stream in streams for source in stream["sources"]} - self.streams.keys()
        unknown = dict.fromkeys(("first_seq", "last_seq", "limits", "identity", "mirror"))
        self.origins |= dict.fromkeys(named, unknown)
        self.readers = {
            name: stream
            for name, stream in self.streams.items()
            if name not in self.origins and stream["error"] is None
        }
        self.is_counter = any(
            stream["sources"] and "allow_msg_counter" in (stream["limits"] or ()) for stream in streams
        )
        self.differences: Counter[Difference] = Counter()
        self.oldest: dict[str, int] = {}
        self.missing: list[tuple[str, str, int | None, int]] = []
        self.facts: dict[tuple[str, str, int], tuple[set[str], str | None, str | None, int]] = {}
        """By message: who has it, its key and id, and when it was written."""
        self.copies = self._copies(messages)

    def _copies(self, messages: list[dict[str, Any]]) -> list[Copy]:
        headers = [header(row["source"]) if row["source"] is not None else None for row in messages]
        current: dict[str, str] = {}
        for row, head in sorted(zip(messages, headers, strict=True), key=lambda pair: pair[0]["time_ns"]):
            if head and "identity" in head and head["stream"] in self.origins and row["stream"] not in self.origins:
                current[head["stream"]] = head["identity"]
        for name, origin in self.origins.items():
            if origin["identity"] is not None and name in current:
                current[name] = origin["identity"]
        self._forget_restored(messages, headers, current)
        routes: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for row, head in zip(messages, headers, strict=True):
            if head and "filters" in head and row["stream"] not in self.origins:
                routes[head["stream"]].add((head["filters"], head["destinations"]))
        result = []
        for row, head in zip(messages, headers, strict=True):
            name = row["stream"]
            digest, total = (0, row["digest"]) if self.is_counter else (row["digest"], None)
            copy = Copy(
                name,
                row["seq"],
                row["time_ns"],
                digest,
                row["msg_id"] or None,
                row["subject"],
                time_to_live(row["ttl"]),
                total=total,
                rolls_up=None if row["rollup"] is None else row["rollup"].lower(),
            )
            if name in self.origins:
                copy.origin, copy.origin_seq, copy.sent, copy.key = name, row["seq"], row["subject"], None
                for filters, destinations in sorted(routes[name]):
                    copy.key = copy.key or through(row["subject"], filters, destinations)
            elif row["source"] is None and self.streams[name]["mirror"] is not None:
                copy.origin, copy.origin_seq, copy.sent = self.streams[name]["mirror"], row["seq"], row["subject"]
            elif head and head["stream"] in self.origins:
                copy.origin, copy.origin_seq, copy.sent = head["stream"], head["seq"], head.get("subject")
                copy.is_replay = "is_replay" in head
                if head.get("identity") not in {None, current.get(head["stream"], head.get("identity"))}:
                    copy.former = head["identity"]
            result.append(copy)
        return result

    def _forget_restored(
        self, messages: list[dict[str, Any]], headers: list[dict[str, Any] | None], current: dict[str, str]
    ) -> None:
        """An origin that holds what is older than what came from its forerunner was restored, and is the same."""
        for name in list(current):
            former = [
                row["time_ns"]
                for row, head in zip(messages, headers, strict=True)
                if head
                and head["stream"] == name
                and row["stream"] not in self.origins
                and head.get("identity", current[name]) != current[name]
            ]
            written = [row["time_ns"] for row in messages if row["stream"] == name]
            if former and written and min(written) + SKEW < max(former):
                del current[name]

    def run(self) -> Counter[Difference]:
        by_reader: dict[str, list[Copy]] = defaultdict(list)
        by_origin: dict[str, list[Copy]] = defaultdict(list)
        for copy in sorted(self.copies, key=lambda one: (one.seq, one.origin_seq)):
            (by_origin if copy.stream in self.origins else by_reader)[copy.stream].append(copy)
        self.by_reader = by_reader
        compared: dict[str, dict[tuple[str, str, int], list[Copy]]] = {name: defaultdict(list) for name in self.readers}
        for name, rows in by_reader.items():
            for copy in rows:
                self._place(name, copy, compared)
            self._order(name, rows)
        held: dict[tuple[str, str, int], list[Copy]] = defaultdict(list)
        for name, rows in by_origin.items():
            for copy in rows:
                held[name, "", copy.seq].append(copy)
            self.oldest[name] = min(copy.seq for copy in rows)
        messages = {*held, *(message for rows in compared.values() for message in rows)}
        for message in messages:
            at_origin = held.get(message, [])
            at_readers = {name: rows[message] for name, rows in compared.items() if message in rows}
            key = usual([k for rows in at_readers.values() if (k := least(row.key for row in rows)) is not None])
            msg_id = max(
                (
                    m
                    for rows in [at_origin, *at_readers.values()]
                    if rows and (m := least(row.msg_id for row in rows)) is not None
                ),
                default=None,
            )
            written = min((copy.time for copy in at_origin), default=None)
            if written is None:
                written = min(row.time for rows in at_readers.values() for row in rows)
            self.facts[message] = (
                set(at_readers),
                key if key is not None else least(copy.key for copy in at_origin),
                msg_id,
                written,
            )
        for message in messages:
            self._message(message, held.get(message, []), compared, by_reader)
        self._find_passed(compared)
        self._holes(held, compared)
        return self.differences

    def _add(
        self,
        kind: str,
        stream: str,
        message: tuple[str | None, str, int | None],
        seq: int | None = None,
        number: int = 1,
    ) -> None:
        self.differences[Difference(kind, stream, *message, seq, number)] += 1

    def _place(self, name: str, copy: Copy, compared: dict[str, dict[tuple[str, str, int], list[Copy]]]) -> None:
        if copy.origin is None:
            self._add("foreign", name, (None, "", None), copy.seq)
            return
        origin = self.origins[copy.origin]
        last = origin["last_seq"]
        if copy.former == "" and last is not None and copy.origin_seq > last:
            if copy.time + SKEW <= origin["snapshot_ns"]:
                self._add("rolled-back", name, (copy.origin, "", copy.origin_seq), copy.seq)
            return
        compared[name][copy.origin, copy.former, copy.origin_seq].append(copy)

    def _order(self, name: str, rows: list[Copy]) -> None:
        seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        for copy in rows:
            if copy.origin is None:
                continue
            mine = seen[copy.origin, copy.former]
            if copy.origin_seq not in mine and mine and max(mine) > copy.origin_seq:
                kind = "put-back" if copy.is_replay else "reordered"
                self._add(kind, name, (copy.origin, copy.former, copy.origin_seq), copy.seq)
            mine.add(copy.origin_seq)

    def _message(
        self,
        message: tuple[str, str, int],
        own: list[Copy],
        compared: dict[str, dict[tuple[str, str, int], list[Copy]]],
        by_reader: dict[str, list[Copy]],
    ) -> None:
        origin, former, seq = message
        info = self.origins[origin]
        at_readers = {name: rows[message] for name, rows in compared.items() if message in rows}
        digest = own[0].digest if own else usual([min(row.digest for row in rows) for rows in at_readers.values()])
        if own:
            digest = min(copy.digest for copy in own)
        key = usual([k for rows in at_readers.values() if (k := least(row.key for row in rows)) is not None])
        _, own_key, msg_id, written = self.facts[message]
        if len(own) > 1:
            self._add("row-twice", origin, message, own[0].seq, len(own) - 1)
        ttl = least(row.ttl for rows in [own, *at_readers.values()] for row in rows)
        may_be_gone = former != "" or may_be_gone_at_origin(info, seq, written, ttl, self.oldest.get(origin))
        if not own and former == "" and info["last_seq"] is not None:
            if not may_be_gone:
                self._add("not-at-origin", origin, message)
            elif info["first_seq"] - removed_early(info) <= seq < info["first_seq"]:
                self._add("removed-early", origin, message)
        for name, reader in self.readers.items():
            rows = at_readers.get(name)
            if rows:
                self._present(name, message, rows, own, digest, key)
            else:
                kind = self._absent(
                    reader,
                    message,
                    own,
                    digest,
                    own_key,
                    msg_id,
                    written,
                    ttl,
                    may_be_gone,
                    compared[name],
                    by_reader.get(name, []),
                    is_nowhere=not at_readers,
                )
                if kind:
                    self._add(kind, name, message)
                    if kind in MISSING:
                        self.missing.append((name, origin, written, 1))

    def _present(
        self, name: str, message: tuple[str, str, int], rows: list[Copy], own: list[Copy], digest: Any, key: Any
    ) -> None:
        seq = min(row.seq for row in rows)
        if len(rows) > 1:
            self._add("duplicated", name, message, seq, len(rows) - 1)
        is_reused = False
        if any(row.digest != digest for row in rows):
            theirs = least(row.msg_id for row in rows)
            mine = least(copy.msg_id for copy in own)
            is_reused = bool(own) and (
                min(copy.time for copy in own) > min(row.time for row in rows)
                or (theirs is not None and mine is not None and theirs != mine)
            )
            self._add("reused" if is_reused else "payload", name, message, seq)
        sent = {row.sent for row in rows if row.sent is not None}
        expected = least(copy.sent for copy in own)
        if not is_reused and (
            any(row.key != key for row in rows)
            or (expected is not None and any(sent_subject != expected for sent_subject in sent))
        ):
            self._add("subject", name, message, seq)

    def _absent(
        self,
        reader: dict[str, Any],
        message: tuple[str, str, int],
        own: list[Copy],
        digest: Any,
        key: str | None,
        msg_id: str | None,
        written: int,
        ttl: int | None,
        may_be_gone: bool,
        compared: dict[tuple[str, str, int], list[Copy]],
        rows: list[Copy],
        *,
        is_nowhere: bool,
    ) -> str | None:
        origin, former, seq = message
        info = self.origins[origin]
        same_ids = self._find_same_ids(reader, message, msg_id, written, rows)
        if same_ids:
            return "deduplicated" if digest in same_ids else "displaced"
        mine = [s for o, f, s in compared if (o, f) == (origin, former)]
        cursor = self.cursor(reader, origin)
        reached = max([cursor or 0, *mine])
        # What a repair has added is as new as the repair: limits have removed what was behind it in the origin.
        sourced = [s for s in mine if not all(copy.is_replay for copy in compared[origin, former, s])]
        may_be_removed = self._may_be_removed(
            reader, message, key, written, sourced, rows, is_own=bool(own), is_nowhere=is_nowhere
        )
        if "allow_msg_ttl" in (reader["limits"] or ()) and is_over(written, ttl, reader["read_at_ns"]):
            may_be_removed = True
        if cursor is None and may_be_removed:
            return "removed"
        is_passed = cursor is None or seq <= reached
        is_oldest = not sourced or seq < min(sourced)
        is_kept = self._is_kept(reader, message, written, rows) and not self._is_purged(reader)
        if is_passed and is_oldest and is_kept and not may_be_removed:
            return "removed-early"
        if seq > reached:
            if own or info["last_seq"] is None:
                is_late = reader["path"] == "capture" or written + 30 * SKEW <= reader["snapshot_ns"]
                return "late" if is_late else "pending"
            if is_replaced_alike(reader, info):
                alike = {
                    row.origin_seq for row in self.copies if (row.origin, row.former, row.key) == (origin, former, key)
                }
                followers = [follower for follower in alike if follower > seq]
                if key is not None and len(followers) >= reader["limits"]["max_msgs_per_subject"]:
                    return "removed"
            elif former == "" and cursor is not None and seq < info["first_seq"]:
                return None
        elif may_be_removed:
            return "removed"
        if not own and info["last_seq"] is not None and may_be_gone:
            return "expired"
        if not sourced or seq < min(sourced):
            return "lost-prefix"
        return "lost-middle" if seq < max(mine) else "lost-tail"

    def _is_kept(self, reader: dict[str, Any], message: tuple[str, str, int], written: int, rows: list[Copy]) -> bool:
        """Whether a reader's `max_msgs` leaves this message, which it lacks: it is among the youngest that are gone."""
        number = self._count_removed_early(reader)
        if not number:
            return False
        younger = 0
        for fact, (holders, _, msg_id, time) in self.facts.items():
            if reader["stream"] in holders or (time, *fact) <= (written, *message):
                continue
            has = [row for row in rows if (row.origin, row.former) == fact[:2] and self._is_compared(row)]
            cursor = self.cursor(reader, fact[0])
            is_passed = cursor is None or fact[2] <= max([cursor, *(row.origin_seq for row in has)])
            is_oldest = all(row.is_replay or fact[2] < row.origin_seq for row in has)
            younger += is_passed and is_oldest and not self._find_same_ids(reader, fact, msg_id, time, rows)
        return younger < number

    def _is_purged(self, reader: dict[str, Any]) -> bool:
        """Whether no smaller `max_msgs` has removed it either: the reader is empty, or another has lost none."""
        if not reader["messages"]:
            return True
        is_below = reader["last_seq"] <= reader["limits"]["max_msgs"]
        return is_below and any(
            whole["first_seq"] == 1
            and whole["last_seq"] >= reader["first_seq"]
            and whole["limits"] is not None
            and LIMITS & whole["limits"].keys() in (set(), {"max_msgs"})
            for whole in self.readers.values()
        )

    def _count_removed_early(self, reader: dict[str, Any]) -> int:
        """As `removed_early`, without what a mirror never had."""
        if reader["mirror"] is None:
            return removed_early(reader)
        through = self.streams.get(reader["mirror"])
        if through is None or through["error"] is not None:
            return 0
        return max(0, min(removed_early(reader), int(reader["first_seq"] - through["first_seq"])))

    def _may_be_removed(
        self,
        reader: dict[str, Any],
        message: tuple[str, str, int],
        key: str | None,
        written: int,
        sourced: list[int],
        rows: list[Copy],
        *,
        is_own: bool,
        is_nowhere: bool,
    ) -> bool:
        limits, seq = reader["limits"], message[2]
        is_oldest = not sourced or seq < min(sourced)
        if limits is not None and removes(limits, oldest=True) and is_oldest and "max_age" in limits:
            old_at = written + limits["max_age"] - (0 if is_own else 30 * SKEW + limits["max_age"] // 10)
            is_age_only = not {"max_msgs", "max_bytes"} & limits.keys()
            if is_age_only and reader["snapshot_ns"] < old_at <= reader["read_at_ns"]:
                return True
        is_whole = reader["messages"] is not None and reader["last_seq"] - reader["messages"] <= 0
        if is_whole and "has_holes" not in (limits or ()):
            return False
        if limits is not None and "retention" in limits:
            return True
        has_lost_oldest = reader["first_seq"] > 1 or "lost_oldest" in (limits or ())
        if (limits is None or removes(limits, oldest=True)) and has_lost_oldest and is_oldest:
            is_age_only = limits is not None and not {"max_msgs", "max_bytes"} & limits.keys()
            if limits is None or (not is_age_only and not self._is_kept(reader, message, written, rows)):
                return True
            max_age = limits.get("max_age", 0)
            on_its_way = 0 if is_own else 30 * SKEW + max_age // 10
            if is_age_only and written + max_age - on_its_way <= reader["read_at_ns"]:
                return True
        keeps = 1 if limits is None else limits.get("max_msgs_per_subject")
        if keeps is not None and key is None:
            return True
        rolls_up = limits is not None and "allow_rollup_hdrs" in limits
        is_told = rolls_up and reader["path"] != "capture" and "allow_msg_ttl" not in limits
        latest = max((row.time for row in rows if row.key == key), default=0)
        same_key = kept_of(rows, key, keeps)
        is_older_kept = any((row.origin, row.former) == message[:2] and row.origin_seq < seq for row in same_key)
        are_newer = not is_older_kept and all(row.time + SKEW >= written for row in same_key)
        are_all_newer = has_lost_oldest and is_oldest and bool(rows) and all(row.time + SKEW >= written for row in rows)
        was_anywhere = is_nowhere and self._was_rolled_up(key, written)
        if is_told and (
            (rolled_up(same_key, "sub", written) and not is_older_kept)
            or (rolled_up(rows, "all", written) and is_oldest)
            or (was_anywhere and ((are_newer and bool(same_key)) or are_all_newer))
        ):
            return True
        may_roll_up = rolls_up and not is_told and (is_nowhere or latest + SKEW >= reader["snapshot_ns"])
        if may_roll_up and are_all_newer:
            return True
        if not are_newer:
            return False
        written_streams = [self.streams[name] for name in self.origins if name in self.streams]
        are_gone = any(
            stream["error"] is None and stream["last_seq"] > stream["messages"] for stream in written_streams
        )
        newer = len(same_key) + self._newer_absent(reader, message, key, written, rows)
        if keeps is not None and limits is not None and "allow_msg_ttl" in limits and is_nowhere and are_gone:
            return True
        return (keeps is not None and newer >= keeps) or (may_roll_up and bool(same_key))

    def _was_rolled_up(self, key: str | None, written: int) -> bool:
        """Whether any reader has a roll-up that may have removed a message of *key*."""
        for name, reader in self.readers.items():
            rows, limits = self.by_reader.get(name, []), reader["limits"]
            keeps = 1 if limits is None else limits.get("max_msgs_per_subject")
            asked = keeps is not None or "allow_rollup_hdrs" in limits
            if rolled_up(rows, "all", written) or (asked and rolled_up(kept_of(rows, key, keeps), "sub", written)):
                return True
        return False

    def _newer_absent(
        self, reader: dict[str, Any], message: tuple[str, str, int], key: str | None, written: int, rows: list[Copy]
    ) -> int:
        """Newer messages of the key that the reader has come past and lacks, too: they have been there."""
        count = 0
        for fact, (holders, other_key, msg_id, time) in self.facts.items():
            if other_key != key or reader["stream"] in holders or (time, *fact) <= (written, *message):
                continue
            origin, former, seq = fact
            has = [
                row.origin_seq
                for row in rows
                if (row.origin, row.former) == (origin, former) and self._is_compared(row)
            ]
            passed = seq <= max([self.cursor(reader, origin) or 0, *has])
            count += passed and not self._find_same_ids(reader, fact, msg_id, time, rows)
        return count

    def _is_compared(self, copy: Copy) -> bool:
        last = self.origins[copy.origin or ""]["last_seq"]
        return copy.former != "" or last is None or copy.origin_seq <= last

    def _find_same_ids(
        self, reader: dict[str, Any], message: tuple[str, str, int], msg_id: str | None, written: int, rows: list[Copy]
    ) -> set[int]:
        """Digests of what the reader has under the id of a message, if that can be why it lacks the message."""
        if msg_id is None:
            return set()
        same_ids = [row for row in rows if row.msg_id == msg_id]
        window = 0 if self._has_stored_all(reader) else (reader["limits"] or {}).get("duplicate_window")
        if window is not None and message[0] in {source["origin"] for source in reader["sources"]}:
            until = max([row.time for row in same_ids], default=0)
            if not window or written > until + window + SKEW:
                return set()
        return {row.digest for row in same_ids}

    def cursor(self, reader: dict[str, Any], origin: str) -> int | None:
        """How far a reader has come, by its own word, or because it has taken as many messages as there ever were."""
        if reader["mirror"] == origin:
            return reader["last_seq"] or None
        cursors = [source["last_seq"] for source in reader["sources"] if source["origin"] == origin]
        if not cursors or None not in cursors:
            return min(cursors, default=None)
        return self.streams[origin]["last_seq"] if self._has_stored_all(reader) else None

    def _has_stored_all(self, reader: dict[str, Any]) -> bool:
        """Whether a reader has ever stored as many messages as its origins had, or more: they may go on."""
        positions: dict[str, list[int | None]] = defaultdict(list)
        for source in reader["sources"]:
            positions[source["origin"]].append(source["last_seq"])
        lasts = {name: self.streams[name]["last_seq"] for name in positions if name in self.streams}
        if len(lasts) < len(positions) or any(self.streams[name]["error"] is not None for name in positions):
            return False
        if any(None in told for told in positions.values()):
            # An origin of servers may have gone on, and made up for what is on its way.
            return bool(reader["path"] == "capture" and reader["last_seq"] == sum(lasts.values()))
        reached = {name: max(seq for seq in told if seq is not None) for name, told in positions.items()}
        return bool(reader["last_seq"] == sum(reached.values())) and all(reached[name] >= lasts[name] for name in lasts)

    def _holes(
        self,
        held: dict[tuple[str, str, int], list[Copy]],
        compared: dict[str, dict[tuple[str, str, int], list[Copy]]],
    ) -> None:
        for name, info in self.origins.items():
            limits = info["limits"]
            if info["first_seq"] is None or limits is None or removes(limits, by_subject=True, is_origin=True):
                continue
            if "allow_msg_ttl" in limits or not info["num_deleted"]:
                continue
            rows = [*held, *(message for copies in compared.values() for message in copies)]
            seqs = {seq for origin, former, seq in rows if (origin, former) == (name, "")}
            last = (
                max(seq for seq in seqs if seq <= info["last_seq"]) if info["path"] == "capture" else info["last_seq"]
            )
            begin = None
            for seq in range(info["first_seq"], last + 2):
                if seq in seqs or seq == last + 1:
                    if begin is not None:
                        self._add("deleted-everywhere", name, (name, "", begin), None, seq - begin)
                    begin = None
                elif begin is None:
                    begin = seq

    def _find_passed(self, compared: dict[str, dict[tuple[str, str, int], list[Copy]]]) -> None:
        for name, reader in self.readers.items():
            for origin, info in self.origins.items():
                cursor = self.cursor(reader, origin)
                if cursor is None or info["first_seq"] is None or is_replaced_alike(reader, info):
                    continue
                reached = max([cursor, *(s for o, f, s in compared[name] if (o, f) == (origin, ""))])
                if reached < info["first_seq"] - 1:
                    number = info["first_seq"] - 1 - reached
                    self._add("expired", name, (origin, "", reached + 1), None, number)
                    self.missing.append((name, origin, None, number))


class DivergedKey(NamedTuple):
    key: str
    is_settled: bool
    last: frozenset[tuple[str, str, int]]


def diverged_keys(audit: Audit) -> set[DivergedKey]:
    """Keys of several origins whose last messages differ between readers."""
    result = set()
    for key in find_shared_keys(audit):
        last: dict[str, Copy] = {}
        for copy in sorted(arrivals(audit), key=lambda one: (one.seq, one.origin or "", one.former, one.origin_seq)):
            if copy.key == key:
                last[copy.stream] = copy
        winners = {(winner.origin or "", winner.former, winner.origin_seq) for winner in last.values()}
        outcomes = {winner.total for winner in last.values()} if audit.is_counter else winners
        if len(outcomes) > 1:
            settled = all(
                seq <= find_reached(audit, reader, origin, former)
                for origin, former, seq in winners
                for reader in audit.readers
            )
            result.add(DivergedKey(key, settled, frozenset(winners)))
    return result


def conflicts(audit: Audit) -> dict[str, int]:
    """By key of several origins, how many writes came before what was written elsewhere in front of them had arrived."""
    counts: Counter[str] = Counter()
    for key in find_shared_keys(audit) if not audit.is_counter else ():
        writes: dict[tuple[str, int], list[Copy]] = defaultdict(list)
        for copy in audit.copies:
            if copy.key == key and copy.origin is not None and copy.former == "":
                writes[copy.origin, copy.origin_seq].append(copy)
        timed = []
        for (origin, seq), copies in writes.items():
            region = audit.origins[origin].get("region")
            if region is None:
                continue
            arrived: dict[str, int] = {}
            for copy in copies:
                if copy.stream not in audit.origins:
                    place = audit.streams[copy.stream]["region"]
                    arrived[place] = min(copy.time, arrived.get(place, copy.time))
            written_at = min(
                (copy.time for copy in copies if copy.stream in audit.origins), default=arrived.get(region)
            )
            if written_at is not None:
                timed.append((written_at, origin, seq, region, arrived))
        timed.sort(key=lambda one: one[:3])
        for before, after in pairwise(timed):
            seen = before[4].get(after[3])
            if before[1] != after[1] and (seen is None or seen > after[0]):
                counts[key] += 1
    return counts


def shared_ids(audit: Audit) -> dict[str, bool]:
    """Message ids of several messages, and whether all have one payload."""
    messages: dict[str, set[tuple[str, str, int]]] = defaultdict(set)
    digests: dict[str, set[int]] = defaultdict(set)
    for copy in audit.copies:
        if copy.msg_id is None or copy.origin is None:
            continue
        first = audit.origins[copy.origin]["first_seq"]
        if copy.stream not in audit.origins and copy.former == "" and first is not None and copy.origin_seq >= first:
            continue
        messages[copy.msg_id].add((copy.origin, copy.former, copy.origin_seq))
        digests[copy.msg_id].add(copy.digest)
    return {message: len(digests[message]) == 1 for message, copies in messages.items() if len(copies) > 1}


def hops(audit: Audit) -> list[tuple[str, str, int, int]]:
    """Of each message that is still in its origin: region of the origin, region of a reader, when it was stored in both."""
    written: dict[tuple[str, int], int] = {}
    arrived: dict[tuple[str, int, str], int] = {}
    for copy in audit.copies:
        if copy.origin is None or copy.former:
            continue
        if copy.stream in audit.origins:
            key = (copy.origin, copy.origin_seq)
            written[key] = min(copy.time, written.get(key, copy.time))
        elif audit.streams[copy.stream]["mirror"] is None:
            at = (copy.origin, copy.origin_seq, audit.streams[copy.stream]["region"])
            arrived[at] = min(copy.time, arrived.get(at, copy.time))
    return [
        (audit.origins[origin]["region"], region, written[origin, seq], time)
        for (origin, seq, region), time in arrived.items()
        if (origin, seq) in written
    ]


def late(audit: Audit) -> dict[tuple[str, str, int | None], list[int]]:
    """By region of origin and of the reader, and by minute, how late messages were, sorted."""
    result: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    for origin, region, written, arrived in hops(audit):
        for minute in (None, written // MINUTE):
            result[origin, region, minute].append(arrived - written)
    return {pair: sorted(delays) for pair, delays in result.items()}


def recovery(
    audit: Audit, windows: tuple[tuple[str, int, int], ...]
) -> dict[tuple[int, str, str], tuple[int, int, int]]:
    """By window and pair of regions: messages, those that are missing, and how long after its end the last arrived."""
    result: dict[tuple[int, str, str], tuple[int, int, int]] = {}
    for _, begun, ended in windows:
        for origin, region, written, arrived in hops(audit):
            if written <= ended and arrived >= begun:
                counted, gone, after = result.get((begun, origin, region), (0, 0, 0))
                result[begun, origin, region] = (counted + 1, gone, max(after, arrived - ended))
        for reader, name, time, number in audit.missing:
            if time is None or time <= ended:
                pair = (begun, audit.origins[name].get("region") or name, audit.streams[reader]["region"])
                counted, gone, after = result.get(pair, (0, 0, 0))
                result[pair] = (counted, gone + number, after)
    return result


def pairs(audit: Audit) -> dict[tuple[str, str], tuple[int, int]]:
    """By two regions: neighbours in one, and how many of these stand the other way round in the other."""
    rows: dict[str, list[Copy]] = defaultdict(list)
    for copy in arrivals(audit):
        rows[audit.streams[copy.stream]["region"]].append(copy)
    result: dict[tuple[str, str], tuple[int, int]] = {}
    for first, second in ((a, b) for a in rows for b in rows if a < b):
        places = sorted(
            (mine.seq, theirs.seq)
            for mine in rows[first]
            for theirs in rows[second]
            if (mine.origin, mine.former, mine.origin_seq) == (theirs.origin, theirs.former, theirs.origin_seq)
        )
        near = [(a, b) for a, b in pairwise(places) if a[0] // BUCKET == b[0] // BUCKET]
        if places:
            result[first, second] = (len(near), sum(b[1] < a[1] for a, b in near))
    return result


def count_misordered(audit: Audit) -> dict[int, int]:
    """By sequence, how many readers have another message there than most."""
    places: dict[int, Counter[tuple[str | None, str, int, int]]] = defaultdict(Counter)
    for copy in audit.copies:
        if copy.stream not in audit.origins:
            places[copy.seq][copy.origin, copy.former, copy.origin_seq if copy.origin else 0, copy.digest] += 1
    return {seq: sum(place.values()) - max(place.values()) for seq, place in places.items() if len(place) > 1}


def share(values: list[int], part: float) -> float:
    """A percentile of sorted *values*, between two of them in proportion."""
    place = part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def arrivals(audit: Audit) -> list[Copy]:
    return [copy for copy in audit.copies if copy.stream not in audit.origins and copy.origin is not None]


def find_shared_keys(audit: Audit) -> set[str]:
    origins: dict[str, set[str]] = defaultdict(set)
    for copy in arrivals(audit):
        origins[copy.key or ""].add(copy.origin or "")
    return {key for key, origin in origins.items() if len(origin) > 1}


def removed_early(stream: dict[str, Any]) -> int:
    """The number of the youngest messages that are gone from the front of a stream although its `max_msgs` leaves them."""
    limits = stream["limits"] or {}
    if LIMITS & limits.keys() != {"max_msgs"} or "lost_oldest" in limits:
        return 0
    if stream["path"] == "capture" or stream["error"] is not None:
        return 0
    first_by_limit = max(stream["last_seq"] - limits["max_msgs"] + 1, limits.get("first_seq", 1))
    return max(0, int(stream["first_seq"] - first_by_limit))


def find_reached(audit: Audit, reader: str, origin: str, former: str) -> int:
    have = [
        arrival.origin_seq
        for arrival in arrivals(audit)
        if (arrival.stream, arrival.origin, arrival.former) == (reader, origin, former)
    ]
    return max([audit.cursor(audit.readers[reader], origin) or 0, *have])


def time_to_live(text: str | None) -> int | None:
    """Nanoseconds that a `Nats-TTL` header says."""
    if text is None:
        return None
    if re.fullmatch("-?[0-9]+", text):
        return int(text) * SKEW if int(text) > 0 else None
    units = {"h": 3600 * SKEW, "m": 60 * SKEW, "s": SKEW, "ms": SKEW // 1000}
    parts = re.findall("([0-9.]+)(h|ms|m|s)", text)
    return int(sum(float(number) * units[unit] for number, unit in parts)) or None


def is_replaced_alike(reader: dict[str, Any], info: dict[str, Any]) -> bool:
    """Whether a reader keeps no more messages of a subject than the origin."""
    by_reader, by_origin = ((stream["limits"] or {}).get("max_msgs_per_subject") for stream in (reader, info))
    return by_reader is not None and by_origin is not None and bool(by_reader <= by_origin)


def kept_of(rows: list[Copy], key: str | None, keeps: int | None) -> list[Copy]:
    return sorted((row for row in rows if row.key == key), key=lambda row: row.seq)[-(keeps or 0) :]


def rolled_up(rows: list[Copy], what: str, written: int) -> bool:
    return any(row.rolls_up == what and written <= row.time + SKEW for row in rows)


def is_over(written: int, ttl: int | None, snapshot: int) -> bool:
    return ttl is not None and written + ttl <= snapshot + 30 * SKEW


def may_be_gone_at_origin(info: dict[str, Any], seq: int, written: int, ttl: int | None, oldest: int | None) -> bool:
    limits = info["limits"]
    if limits is None:
        return True
    if "allow_msg_ttl" in limits and is_over(written, ttl, info["read_at_ns"]):
        return True
    if removes(limits, by_subject=True, is_origin=True):
        return True
    if info["first_seq"] is None or not removes(limits, oldest=True):
        return False
    if oldest is not None and seq >= max(oldest, info["first_seq"]):
        return False
    if {"max_msgs", "max_bytes"} & limits.keys():
        return True
    age = limits["max_age"]
    return bool(written + age - 30 * SKEW - age // 10 <= info["read_at_ns"])


def removes(limits: dict[str, int], *, oldest: bool = False, by_subject: bool = False, is_origin: bool = False) -> bool:
    names = {"retention"}
    names |= {"allow_rollup_hdrs"} if is_origin else set()
    names |= {"max_age", "max_msgs", "max_bytes"} if oldest else set()
    names |= {"max_msgs_per_subject"} if by_subject else set()
    return bool(names & limits.keys())


def least(values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def usual(values: list[Any]) -> Any:
    """The most frequent value; of several, the least."""
    counts = Counter(values)
    return min(counts, key=lambda one: (-counts[one], one)) if counts else None
