"""
Normalise: find out for each stored message which original message it is a copy of.

A read stream's own sequences and timestamps say when a message arrived. Its `Nats-Stream-Source`
header says which message it is: the write stream that stored it first, and the sequence there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import make_dataclass, replace
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.connector.stream_snapshots import SKEW_NS
from vstream.audit.normalise import routes
from vstream.audit.spark.local_frames import collect_arrow, make_table, plain_rows
from vstream.audit.tables.schema import MESSAGES, make_schema
from vstream.audit.tables.stream_facts import StreamFacts, tabulate_verified
from vstream.topology.stream_config import ACCOUNT_SEPARATOR, REPLAY_SUFFIX, header_name

COPIES = make_schema("""
    virtual string not null, stream string not null, region string not null, is_origin boolean not null,
    seq bigint not null, time_ns bigint not null, origin string, former string, origin_seq bigint,
    sent_subject string, key string, msg_id string, ttl_ns bigint, rolls_up string, digest bigint not null, sum bigint,
    is_replay boolean not null, substream bigint not null
""")
"""
Columns of COPIES, one row for each row of `messages`. *origin* and *origin_seq* are the stream that stored the message
from its client, and the sequence there; null if the row is not a copy of a message of its virtual stream. *former* is
empty, or the identity that the stream *origin* had before it was deleted and created again. *sent_subject* is the
subject in the origin, null if unknown; *key* is the subject as clients of the virtual stream see it, null for a row of
an origin with unknown transforms. Messages of counters (`StreamFacts.counters`) have the *digest* 0, because their
payload differs in every stream, and their payload as *sum*, null for all others. *ttl_ns* is the time to live in
nanoseconds, null without one. *rolls_up* is what the message rolls up, `sub` or `all`, null for nothing.
*is_replay*: whether a repair added the message again. *substream* is a number for virtual, stream, origin and former
together (`substream_id`): within a substream, sequences of the origin increase unless something is wrong.
"""

_MADE_FOR = "(:C=[0-9A-Za-z]{8})?$"
_HASH = ":[0-9A-Za-z]{8}$"
_EXTERNAL = f"(:[0-9A-Za-z]{{8}})?{_MADE_FOR}"
"""The suffix that servers append to the name of a stream in another account, and to that of its consumer."""
_GO_UNITS: Final = {"h": 3.6e12, "m(?!s)": 6e10, "s": 1e9, "ms": 1e6}
"""Units of a time to live, which is at least a second, in nanoseconds."""
_MAX_TIME_NS: Final = 3e18
"""About 95 years."""
_ACK_PREFIX = "$JS.ACK."
_LONG_ACK_TOKENS = 11
"""Number of tokens of an acknowledgement subject with domain and account before the stream."""
_ORIGIN_FACTS = make_schema("virtual string, origin string, current string, routes routes", routes=routes.ROUTES)
_EXAMPLE_KEYS = StructType([MESSAGES["virtual"], MESSAGES["stream"], MESSAGES["seq"]])
_HEADER_FORM = ("virtual", "stream", "origin", "filters", "destinations", "identity")
_RouteOfOrigin = tuple[str, str, routes.SubjectRoute]
"""With the virtual stream and the origin."""
_Form = make_dataclass("_Form", (*_HEADER_FORM, "seqs", "time_ns", "is_proven"), slots=True)
"""A form of headers, the sequences of three messages that have it, and whether the first one proves its prefix."""
_HIDDEN = make_schema("called string, hidden string")


def substream_id() -> Column:
    """The substream of a row with the columns virtual, stream, origin and former."""
    return F.xxhash64("virtual", "stream", "origin", "former")


def _ttl_ns(ttl: Column) -> Column:
    """A `Nats-TTL` header (seconds or a Go duration) in nanoseconds; null for `never`, and without a header."""
    parts = []
    for unit, scale in _GO_UNITS.items():
        number = F.regexp_extract(ttl, rf"([0-9.]+){unit}", 1).try_cast("double")
        parts.append(F.coalesce(number, F.lit(0.0)) * F.lit(scale))
    seconds = ttl.try_cast("double") * F.lit(1e9)
    # A time and this one are a number that a column can hold.
    length = F.least(F.coalesce(seconds, reduce(add, parts)), F.lit(_MAX_TIME_NS)).cast("bigint")
    # Most messages have none, and are not looked at.
    return F.when(ttl.isNotNull() & (length > 0), length)


def make_copies(messages: DataFrame, facts: StreamFacts, origin_facts: DataFrame) -> DataFrame:
    """COPIES of `messages` (`schema.MESSAGES`), of whose origins `collect_origin_facts` has collected *origin_facts*."""
    is_origin = F.col("is_origin")
    # A header that a client has sent says nothing.
    headers = {name: F.when(~is_origin, F.col(name)) for name in ("source", "mirror")}
    parsed = _parse_headers(_mark_origins(messages, facts).withColumns(headers), facts).withColumn(
        "origin", F.when(is_origin, F.col("stream")).otherwise(F.col("origin"))
    )
    copies = _describe_copies(parsed.join(F.broadcast(origin_facts), ["virtual", "origin"], how="left"))
    return _drop_verified(_split_counter_sums(copies, facts).withColumn("substream", substream_id()), facts).select(
        *COPIES.names
    )


def _mark_origins(messages: DataFrame, facts: StreamFacts) -> DataFrame:
    """*messages* with *is_origin* and *mirror* of their streams; they fail when read if a stream is unknown."""
    rows = _require_values(messages).join(F.broadcast(facts.roles), ["virtual", "stream"], how="left")
    # An inner join would pass over them in silence.
    stray = F.concat(F.lit("`messages` has rows of `"), "stream", F.lit("`, and `streams` does not know it"))
    return rows.withColumn("is_origin", F.coalesce("is_origin", F.raise_error(stray).cast("boolean")))


def _drop_verified(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """*copies* without those that are verified, and stand behind the first unverified ones of their reader."""
    if not facts.verified.virtuals:
        return copies
    verified_routes = F.broadcast(tabulate_verified(copies.sparkSession, facts.verified))
    is_verified = ~F.col("is_origin") & (F.col("seq") <= F.col("read_to")) & (F.col("origin_seq") <= F.col("until"))
    marked = copies.join(verified_routes, ["virtual", "stream", "origin"], how="left")
    return marked.where(~F.coalesce(is_verified & (F.col("former") == ""), F.lit(False)))


def _split_counter_sums(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    if not facts.counters:
        return copies.withColumn("sum", F.lit(None).cast("bigint"))
    is_counter, digest = F.col("virtual").isin(*facts.counters), F.col("digest")
    return copies.withColumns(
        {"sum": F.when(is_counter, digest), "digest": F.when(is_counter, F.lit(0).cast("bigint")).otherwise(digest)}
    )


def _require_values(messages: DataFrame) -> DataFrame:
    """*messages*, which fail when read if a required value is null."""
    forms = "`messages` has a row without `{}`: extract the tables again"
    required = {}
    for field in MESSAGES.fields:
        if not field.nullable:
            error = F.raise_error(F.lit(forms.format(field.name))).cast(field.dataType)
            required[field.name] = F.coalesce(field.name, error)
    return messages.withColumns(required)


def _find_restored_origins(
    origins: DataFrame, forms: Sequence[Any], identities: Mapping[tuple[str, str], str]
) -> set[tuple[str, str]]:
    """
    Origins with several identities that were restored from a backup: their messages are older than their identity.

    To servers since 2.15, a restored stream is a new one. To clients it is the same: what comes again is a duplicate.
    """
    former: dict[tuple[str, str], int] = {}
    for row in forms:
        origin = (row.virtual, row.origin)
        if row.identity is not None and row.identity != identities[origin]:
            former[origin] = max(former.get(origin, 0), row.time_ns)
    if not former:
        return set()
    oldest = origins.where(F.col("stream").isin(sorted({name for _, name in former})))
    times = oldest.groupBy("virtual", "stream").agg(F.min("time_ns").alias("time_ns")).collect()
    begun = {(row.virtual, row.stream): row.time_ns for row in times}
    return {origin for origin, last in former.items() if origin in begun and begun[origin] + SKEW_NS < last}


def collect_origin_facts(messages: DataFrame, facts: StreamFacts) -> DataFrame:
    """
    By origin, for all of them: its current identity, and the routes that turn its subjects into those of the virtual stream.

    Reads `messages` for what headers say, and up to twice more for examples. The identity is the one that the server
    reports, else the last one in a header. A route that does not explain one of three examples is left out, because
    something about it is unknown. Servers before 2.12 give no examples; their routes come last.
    """
    rows = _mark_origins(messages, facts)
    copies = rows.where(~F.col("is_origin"))
    # Numbers alone: Spark would sort all messages for the least and the greatest of anything else.
    group = F.array(F.min("seq"), F.max("seq"), F.max_by("seq", F.xxhash64("seq"))).alias("seqs")
    aggregates = (
        group,
        F.max("time_ns").alias("time_ns"),
        F.min_by(routes.replaces_prefix(), "seq").alias("is_proven"),
    )
    forms = collect_arrow(_parse_headers(copies, facts).groupBy(*_HEADER_FORM).agg(*aggregates))
    # Spark would take each header apart once more to leave these out before it groups them.
    all_forms = starmap(_Form, plain_rows(forms.filter(forms["filters"].is_valid())))
    told_forms = [form for form in all_forms if (form.virtual, form.origin) in facts.bounds]
    current, by_route = _group_forms(told_forms, facts)

    proven = {
        (False, *key) for key, group in by_route.items() if key[2].is_prefix and any(form.is_proven for form in group)
    }
    unproven = {key: group for key, group in by_route.items() if (False, *key) not in proven}
    # One message of one reader mostly proves a route for all: the others are not looked up.
    first = {key: [replace(form, seqs=form.seqs[:1])] for key, (form, *_) in unproven.items()}
    proven |= _prove_routes(first, copies, facts)
    proven |= _prove_routes(
        {key: group for key, group in unproven.items() if (False, *key) not in proven}, copies, facts
    )
    routes_found: dict[tuple[str, str], set[tuple[bool, routes.SubjectRoute]]] = defaultdict(set)
    for is_unproven, virtual, name, route in proven:
        routes_found[virtual, name].add((is_unproven, route))
    identities = {origin: facts.identities.get(origin) or identity for origin, (_, identity) in current.items()}
    restored = {origin for origin in identities if facts.identities.get(origin) == ""}
    for origin in restored | _find_restored_origins(rows.where("is_origin"), told_forms, identities):
        del identities[origin]
    told = []
    for origin in sorted(facts.bounds):
        told.append((*origin, identities.get(origin), routes.to_rows(_sort_routes(routes_found[origin]))))
    return make_table(messages.sparkSession, told, _ORIGIN_FACTS)


def _group_forms(
    rows: Iterable[Any], facts: StreamFacts
) -> tuple[dict[tuple[str, str], tuple[int, str]], dict[_RouteOfOrigin, list[Any]]]:
    """By origin: its last identity and when it was told; and by origin and route: the forms that tell it."""
    transforms = {(row.virtual, row.stream): row.transform for row in facts.rows}
    current: dict[tuple[str, str], tuple[int, str]] = {}
    parsed: dict[tuple[Any, ...], routes.SubjectRoute | None] = {}
    by_route: dict[_RouteOfOrigin, list[Any]] = defaultdict(list)
    for form in rows:
        origin = (form.virtual, form.origin)
        if form.identity is not None:
            told = (form.time_ns, form.identity)
            current[origin] = max(current.get(origin, told), told)
        transform = transforms[form.virtual, form.stream]
        header = (form.filters, form.destinations, (transform.src, transform.dest) if transform else None)
        if header not in parsed:
            parsed[header] = routes.parse_route(*header)
        route = parsed[header]
        if route is not None:
            by_route[*origin, route].append(form)
    return current, by_route


def _prove_routes(
    groups: Mapping[_RouteOfOrigin, Sequence[Any]], copies: DataFrame, facts: StreamFacts
) -> set[tuple[bool, str, str, routes.SubjectRoute]]:
    """Routes that explain an example of a form that tells them, or have none: whether there is none, and the route."""
    keys = {(form.virtual, form.stream, seq) for group in groups.values() for form in group for seq in form.seqs}
    if not keys:
        return set()
    picked = F.broadcast(make_table(copies.sparkSession, sorted(keys), _EXAMPLE_KEYS))
    rows = _parse_headers(copies.join(picked, _EXAMPLE_KEYS.names, how="left_semi"), facts)
    examples: dict[tuple[Any, ...], list[tuple[str | None, str]]] = defaultdict(list)
    for *form, sent, stored in rows.select(*_HEADER_FORM, "sent_subject", "subject").collect():
        examples[tuple(form)].append((sent, stored))
    result = set()
    for key, group in groups.items():
        for form in group:
            of_form = examples.get(tuple(getattr(form, name) for name in _HEADER_FORM), ())
            proofs = [key[2].apply(sent) == stored for sent, stored in of_form if sent is not None]
            if any(proofs) or not proofs:
                result.add((not proofs, *key))
    return result


def _sort_routes(proven: set[tuple[bool, routes.SubjectRoute]]) -> list[routes.SubjectRoute]:
    """Sort the routes; proven ones come first."""
    return [route for _, route in sorted(proven, key=lambda item: (item[0], item[1].steps, item[1].whole or ()))]


def _hidden_names(facts: StreamFacts, spark: SparkSession) -> DataFrame | None:
    """The names of streams of hidden accounts on servers and in the tables; None if there are none."""
    names = {row.stream for row in facts.rows} | {source.origin for row in facts.rows for source in row.sources}
    existing = [(header_name(name), name) for name in sorted(names) if ACCOUNT_SEPARATOR in name]
    return make_table(spark, existing, _HIDDEN) if existing else None


def _strip_suffix(name: Column, ending: str) -> Column:
    """*name* without the suffix of servers; most names have none, and skip the regular expression."""
    return F.when(name.contains(":"), F.regexp_replace(name, ending, "")).otherwise(name)


def _resolve_origin(rows: DataFrame, hidden: DataFrame | None) -> DataFrame:
    """Add `origin` to *rows*: the stream that headers call `name`; without a hash, in the reader's account."""
    plain = _strip_suffix(F.col("name"), _EXTERNAL)
    if hidden is None:
        return rows.withColumn("origin", plain)
    beside = F.concat(F.regexp_extract("stream", f"^(.*{ACCOUNT_SEPARATOR})?", 0), plain)
    return (
        rows.withColumn("called", _strip_suffix(F.col("name"), _MADE_FOR))
        .join(F.broadcast(hidden), ["called"], how="left")
        .withColumn("origin", F.coalesce("hidden", F.when(F.col("called").rlike(_HASH), plain).otherwise(beside)))
    )


def _parse_headers(rows: DataFrame, facts: StreamFacts) -> DataFrame:
    """Add the values of headers to *rows* of streams that source others."""
    # Each of these is a column of its own: Spark would compute it again wherever it is used.
    rows = rows.withColumn("words", F.split("source", " "))
    words = F.col("words")
    first = F.get(words, F.lit(0))
    is_ack = first.startswith(_ACK_PREFIX)
    tokens = F.split(first, r"\.")
    shift = F.when(F.size(tokens) >= _LONG_ACK_TOKENS, F.lit(2)).otherwise(F.lit(0))
    is_form = is_ack | (F.size(words) == 2) | (F.size(words) >= 4)  # noqa: PLR2004 - the forms that servers write
    forms = F.when(is_ack, F.get(tokens, shift + 5)).otherwise(F.get(words, F.lit(1)))
    rows = rows.withColumns(
        {
            "name": F.when(is_ack, F.get(tokens, shift + 2)).otherwise(first),
            "said_seq": F.when(is_form, forms.try_cast("bigint")),
        }
    )
    is_good, name = F.col("said_seq").isNotNull(), F.col("name")
    # A mirror keeps sequences, and its messages have no header unless the mirrored stream's have one.
    is_mirrored = F.col("source").isNull() & F.col("mirror").isNotNull()
    is_replay = name.contains(":") & name.rlike(REPLAY_SUFFIX)

    def word(position: int) -> Column:
        return F.when(~is_ack, F.get(words, F.lit(position)))

    return _resolve_origin(rows, _hidden_names(facts, rows.sparkSession)).select(
        *("virtual", "stream", "region", "is_origin", "seq", "time_ns", "subject", "digest"),
        # To servers, an empty id is none.
        F.when(F.col("msg_id") != "", F.col("msg_id")).alias("msg_id"),
        _ttl_ns(F.col("ttl")).alias("ttl_ns"),
        F.lower("rollup").alias("rolls_up"),
        F.when(is_mirrored, F.col("mirror")).when(is_good, F.col("origin")).alias("origin"),
        F.when(is_mirrored, F.col("seq")).when(is_good, F.col("said_seq")).alias("origin_seq"),
        word(2).alias("filters"),
        word(3).alias("destinations"),
        F.when(is_mirrored, F.col("subject")).otherwise(word(4)).alias("sent_subject"),
        # That of a replay is of a stream that is gone.
        F.when(~is_replay, word(5)).alias("identity"),
        F.coalesce(is_replay, F.lit(False)).alias("is_replay"),
    )


def _describe_copies(rows: DataFrame) -> DataFrame:
    """The columns of COPIES for *rows* with values of headers, and with the facts about their origins."""
    is_origin, is_known = F.col("is_origin"), F.col("routes").isNotNull()
    is_former = is_known & (F.col("identity") != F.col("current"))
    by_route = routes.apply_routes(F.col("subject"), F.col("routes"))
    return rows.withColumns(
        {
            "origin": F.when(is_known, F.col("origin")),
            "former": F.when(is_former, F.col("identity")).otherwise(F.lit("")),
            "origin_seq": F.when(is_origin, F.col("seq")).when(is_known, F.col("origin_seq")),
            "sent_subject": F.when(is_origin, F.col("subject")).otherwise(F.col("sent_subject")),
            "key": F.when(is_origin, by_route).otherwise(F.col("subject")),
        }
    )
