"""Names, subjects and paths that are derived from a topology. Those of streams: `physical`, and `local_name` of profiles."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD
from vstream.topology.stream_config import ACCOUNT_SEPARATOR, FORMER_PREFIX, HIDDEN_PREFIXES, StreamConfig, source_api

if TYPE_CHECKING:
    from vstream.topology.model import Naming, Topology, VirtualStream

PHYSICAL_PREFIX = "_vs"
"""First token of physical subjects. It lies outside anything a client may publish on."""

RESERVED_NAMES = frozenset({"CREATE", "DELETE", "GET", "INFO", "LIST", "NAMES", "NEXT", "PEER", "STEPDOWN", "UPDATE"})
"""
Stream names that make API mappings ambiguous: `$JS.API.CONSUMER.*.NEXT.>` also matches
`$JS.API.CONSUMER.MSG.NEXT.foo.bar` (server/jetstream_api.go, the JSApi subjects).
"""


CLIENT_ACCOUNT = "APP"
"""The account of clients, with `accounts` if the topology has no name for it, and `domains`. With `regional`, `APP_west` and others."""
FORMER_ACCOUNT = f"{FORMER_PREFIX}clients"
"""
vstream's name for the account of clients where it means the streams of `routing: mapped` that a topology moves away
from. Their API is at `_vs.api.M_clients.…`, since the account's own API subjects lead elsewhere.
"""
REGION_PREFIX = f"{PHYSICAL_PREFIX}.at"
"""With `routing: accounts`, what clients in a region send goes to `_vs.at.<region>.<subject>`."""
ACCOUNT_API_PREFIX = f"{PHYSICAL_PREFIX}.api"
"""There, and with `regional`, the JetStream API of an account, for vstream itself: `_vs.api.<account>.STREAM.INFO.foo`."""
OWN_API = f"{ACCOUNT_API_PREFIX}.{FORMER_ACCOUNT}.>"
"""The rule for that. Only vstream, and the accounts that are fed from there, send requests to it."""
DELIVER_PREFIX = f"{PHYSICAL_PREFIX}.to"
"""Where one hidden account delivers to another: `_vs.to.<from>.<to>.…`."""
REPUBLISH_PREFIX = f"{PHYSICAL_PREFIX}.heard"
"""What a write stream has stored is published again at `_vs.heard.<subject>`, for subscribers without JetStream."""
DIGEST_PREFIX = f"{PHYSICAL_PREFIX}.text"
"""An export that nobody uses is called `_vs.text.<digest>`: of what servers do not tell of the accounts they have loaded."""
PUBLISH_PREFIX = f"{PHYSICAL_PREFIX}.w"
"""With `routing: domains` and `regional`, what clients publish goes to `_vs.w.<subject>` of their region."""
REPAIR_PREFIX = "_vsr"
"""Where `vstream repair messages` publishes what it replays: a token of the repair follows, and the subject that it is stored on."""
REPAIR_ALIVE_PREFIX = "_vsr-alive"
"""Where it answers, below that token, for as long as it runs."""
NO_REGION = "_"
"""Stands for a region in a physical subject that no stream listens on. No region is called so."""
API = "$JS.API"
ADVISORIES = "$JS.EVENT.ADVISORY.API"
DEFAULT_LINK = "default"
"""The key of `links` that stands for every link that has no key of its own. No pair is called so: it has no `-`."""
LINK_SEPARATORS = ("/", "-")
"""Between the two regions of a link. Names of regions can contain the second, never the first."""


def common_client_account(topology: Topology) -> str:
    """The account of clients, where it is one for all regions."""
    return topology.account or CLIENT_ACCOUNT


def region_account(region: str) -> str:
    """With `routing: regional`, the account of the clients and the streams of *region*."""
    return f"{CLIENT_ACCOUNT}_{region}"


def account_of_writes(region: str) -> str:
    """The hidden account that takes publishes in *region*."""
    return f"W_{region}"


def account_of_reads(region: str) -> str:
    """The hidden account that answers reads in *region*; the origins of streams at home there are in it too."""
    return f"R_{region}"


def stretch_account(cluster: str) -> str:
    """The hidden account of the streams in the stretch cluster."""
    return f"S_{cluster}"


def qualified_name(account: str | None, name: str) -> str:
    """Name the stream *name* of a hidden *account* as vstream does: `R_west/foo`. Without an account: *name* itself."""
    return name if account is None else f"{account}{ACCOUNT_SEPARATOR}{name}"


def qualify_answer(answered: str, expected: str) -> str:
    """The stream that answered with the name *answered*: the *expected* one if that is its name in its account."""
    return expected if answered == local_name(expected) else answered


def local_name(name: str) -> str:
    """The name that servers know a physical stream by: `foo` of `R_west/foo`."""
    return name.rpartition(ACCOUNT_SEPARATOR)[2]


def pause_subject(name: str) -> str:
    """What the physical stream *name* listens on alone while it takes no publishes. Users may not publish there."""
    return f"{PHYSICAL_PREFIX}.paused.{local_name(name)}"


def is_paused(config: StreamConfig) -> bool:
    """Whether a stream with *config* takes no publishes, because it moves or is scaled up."""
    return [*config.subjects] == [pause_subject(config.name)]


def api_prefix(account: str | None) -> str:
    """
    The prefix at which the account of clients reaches the JetStream API of a hidden *account*, or its own.

    That of a domain is reached in its own region only.
    """
    if account is None:
        return API
    return f"{ACCOUNT_API_PREFIX}.{account}" if account.startswith(HIDDEN_PREFIXES) else source_api(account)


def api_subject(verb: str, name: str) -> str:
    """The subject of the JetStream API that asks *verb*, such as `STREAM.INFO`, of the stream *name*."""
    account, _, local = name.rpartition(ACCOUNT_SEPARATOR)
    return f"{api_prefix(account or None)}.{verb}.{local}"


def external_api(stream: str, taker: str | None) -> dict[str, str] | None:
    """How the account *taker* reaches the API of the account of *stream*, a physical one; None in the same account."""
    account, separator, _ = stream.rpartition(ACCOUNT_SEPARATOR)
    if not separator or account == taker:
        return None
    delivered = {"deliver": f"{DELIVER_PREFIX}.{account}.{taker}"} if account.startswith(HIDDEN_PREFIXES) else {}
    return {"api": source_api(account), **delivered}


def server_name(region: str, number: int) -> str:
    """The name of a server; *number* counts from 1."""
    return f"{region}-{number}"


def hub_name(region: str) -> str:
    """The name of the server that joins *region* to the others, and of its cluster: `hub-west`."""
    return f"hub-{region}"


def stretch_server_name(cluster: str, region: str) -> str:
    """The name of the stretch cluster's member in *region*: `stretch-west`."""
    return f"{cluster}-{region}"


def link_ends(key: str, regions: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of *regions* that a link's *key* can mean: `west-east`, `west/east`. More than one is too many."""
    separator = LINK_SEPARATORS[0] if LINK_SEPARATORS[0] in key else LINK_SEPARATORS[1]
    parts = key.split(separator)
    ends = ((separator.join(parts[:cut]), separator.join(parts[cut:])) for cut in range(1, len(parts)))
    return tuple((left, right) for left, right in ends if left in regions and right in regions)


def is_wildcard(token: str) -> bool:
    """Whether *token* is a subject wildcard."""
    return token in {PARTIAL_WILDCARD, FULL_WILDCARD}


def physical_subject(naming: Naming, stream: str, region: str, subject: str) -> str:
    """Where a message published on *subject* in *region* is stored; wildcards stay wildcards."""
    if naming.is_isolated:
        return f"{PHYSICAL_PREFIX}.{stream}.{region}.{subject}"
    first, _, rest = subject.partition(".")
    return f"{first}.{region}.{rest}" if rest else f"{first}.{region}"


def virtual_subject(naming: Naming, subject: str) -> str:
    """The inverse of `physical_subject`, for the literal subject of a stored message."""
    if naming.is_isolated:
        return subject.split(".", 3)[-1]
    first, _, rest = subject.partition(".")
    rest = rest.partition(".")[2]
    return f"{first}.{rest}" if rest else first


def with_placeholders(pattern: str, *, start: int = 1) -> str:
    """A destination's spelling of *pattern*: each `*` becomes `{{wildcard(n)}}`, counting from *start*."""
    tokens = []
    number = start
    for token in pattern.split("."):
        if token == PARTIAL_WILDCARD:
            tokens.append(f"{{{{wildcard({number})}}}}")
            number += 1
        else:
            tokens.append(token)
    return ".".join(tokens)


def canary_subject(stream: VirtualStream, origin: str) -> str | None:
    """The subject on which a probe publishes in *origin*, None if none was agreed on."""
    if stream.canary is None:
        return None
    return ".".join(origin if token == PARTIAL_WILDCARD else token for token in stream.canary.split("."))


def list_canary_subjects(stream: VirtualStream) -> tuple[str, ...]:
    """The subjects on which a probe publishes in the regions of *stream*; none if none was agreed on."""
    subjects = (canary_subject(stream, region) for region in stream.regions)
    return tuple(dict.fromkeys(subject for subject in subjects if subject is not None))


def probe_subject(pattern: str) -> str:
    """A literal subject under *pattern* that no application uses."""
    return ".".join("_vstream_probe" if is_wildcard(token) else token for token in pattern.split("."))
