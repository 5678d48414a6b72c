"""
One mapping, checked and made ready as the server does it when it loads a file.

Source: `server/accounts.go` (AddWeightedMappings), `server/opts.go`
(parseAccountMappings, parseAccountMapDest).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from vstream.subjects.algebra import SEPARATOR, is_valid
from vstream.subjects.functions import ErrorKind, TransformError
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.transform import SubjectTransform, numbered_wildcards, parse_mapping_transform
from vstream.value_class import value_class

_PERCENT = 100
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}
_MAX_ASCII_CONTROL = 0x7F
_RAW_BYTES = range(0xDC80, 0xDD00)
_MAX_BMP = 0xFFFF


class MappingErrorKind(Enum):
    """What is wrong with a mapping."""

    INVALID_SOURCE = "invalid-source"
    INVALID_WEIGHT = "invalid-weight"
    DUPLICATE_DESTINATION = "duplicate-destination"
    TOTAL_WEIGHT = "total-weight"
    INVALID_DESTINATION = "invalid-destination"
    INVALID_REMAINDER = "invalid-remainder"
    """The weights leave a remainder, and the source cannot be its own destination: it contains a function."""
    PANICS = "panics"
    """No destination subject: `nats-server -t` takes it, the first publish that it hits kills the server."""


@value_class
class MappingError:
    """
    One thing wrong with *mapping*, at *destination* unless the mapping as a whole is meant.

    *message* is ours. *server_message* is the reason the server prints, without
    its prefix `Error adding mapping for … :`. Of each mapping it prints all
    invalid weights, and only the first of the other errors (none after an
    invalid weight, if the destination is written without brackets). *transform*
    is set for an invalid destination or remainder.
    """

    kind: MappingErrorKind
    mapping: MappingRule
    message: str
    server_message: str
    destination: Destination | None = None
    transform: TransformError | None = None

    @property
    def is_rejected(self) -> bool:
        """Whether `nats-server -t` refuses the file for it."""
        return self.kind is not MappingErrorKind.PANICS


@value_class
class Route:
    """A share of *weight* percent: *destination* is None for the remainder, *transform* None if it panics."""

    weight: int
    transform: SubjectTransform | None
    destination: Destination | None


@value_class
class CompiledMapping:
    """
    A mapping that the server accepts, with its routes by cluster; "" is for every other cluster.

    Where the weights of the routes add up to less than 100, the rest is lost.
    """

    mapping: MappingRule
    routes: Mapping[str, tuple[Route, ...]]


def compile_mapping(mapping: MappingRule) -> tuple[CompiledMapping | None, list[MappingError]]:
    """The mapping made ready, None if the server refuses it, and all that is wrong with it, in the server's order."""
    if not is_valid(mapping.source):
        message = f"`{mapping.source}` is not a valid subject"
        wording = f"Subject {go_quote(mapping.source)} is not a valid subject"
        return None, [_make_error(MappingErrorKind.INVALID_SOURCE, mapping, message, wording)]
    errors = []
    for destination in mapping.destinations:
        if not _is_weight(destination.weight):
            errors.append(_make_weight_error(mapping, destination))
    weighed = [destination for destination in mapping.destinations if _is_weight(destination.weight)]
    transforms = [parse_mapping_transform(mapping.source, destination.subject) for destination in weighed]
    set_errors = list(_list_set_errors(mapping, weighed, transforms))
    routes: dict[str, list[Route]] = {"": []}
    for destination, transform in zip(weighed, transforms, strict=True):
        route = Route(
            weight=destination.weight,
            transform=None if isinstance(transform, TransformError) else transform,
            destination=destination,
        )
        routes.setdefault(destination.cluster or "", []).append(route)
    if not any(error.is_rejected for error in set_errors):
        set_errors += _add_remainders(mapping, routes)
    errors += set_errors
    if any(error.is_rejected for error in errors):
        return None, errors
    ready = {cluster: tuple(cluster_routes) for cluster, cluster_routes in routes.items()}
    return CompiledMapping(mapping=mapping, routes=ready), errors


def go_quote(text: str) -> str:
    """*text* as Go prints it with %q (strconv.Quote)."""
    return '"' + "".join(_quote_char(character) for character in text) + '"'


def _quote_char(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code in _RAW_BYTES:
        return f"\\x{code - _RAW_BYTES.start + 0x80:02x}"
    if code <= _MAX_ASCII_CONTROL:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _MAX_BMP else f"\\U{code:08x}"


def _is_weight(weight: int) -> bool:
    return 0 <= weight <= _PERCENT


def _make_error(
    kind: MappingErrorKind,
    mapping: MappingRule,
    message: str,
    server_message: str,
    destination: Destination | None = None,
) -> MappingError:
    return MappingError(
        kind=kind, mapping=mapping, message=message, server_message=server_message, destination=destination
    )


def _make_weight_error(mapping: MappingRule, destination: Destination) -> MappingError:
    return _make_error(
        MappingErrorKind.INVALID_WEIGHT,
        mapping,
        f"weight {destination.weight} of `{destination.subject}` is not within 0 and 100",
        f"Invalid weight {destination.weight} for mapping destination",
        destination,
    )


def _list_set_errors(
    mapping: MappingRule, destinations: Sequence[Destination], transforms: Sequence[SubjectTransform | TransformError]
) -> Iterator[MappingError]:
    """
    What is wrong with destinations, each by itself and as a set.

    The server adds up weights in a uint8, which cannot overflow: the sum so far
    and the next weight are both at most 100.
    """
    seen: set[str] = set()
    totals: defaultdict[str, int] = defaultdict(int)
    for destination, transform in zip(destinations, transforms, strict=True):
        subject, cluster = destination.subject, destination.cluster or ""
        if subject in seen:
            message = f"`{subject}` is a destination twice, which is refused even for two clusters"
            wording = f"duplicate entry for {go_quote(subject)}"
            yield _make_error(MappingErrorKind.DUPLICATE_DESTINATION, mapping, message, wording, destination)
            continue
        seen.add(subject)
        before = totals[cluster]
        totals[cluster] += destination.weight
        if before <= _PERCENT < totals[cluster]:
            where = f"cluster `{cluster}`" if cluster else "no cluster in particular"
            message = f"the weights for {where} add up to more than 100"
            wording = "total weight needs to be <= 100"
            yield _make_error(MappingErrorKind.TOTAL_WEIGHT, mapping, message, wording, destination)
        if isinstance(transform, TransformError):
            yield from _list_destination_errors(mapping, destination, transform)


def _list_destination_errors(
    mapping: MappingRule, destination: Destination, transform_error: TransformError
) -> Iterator[MappingError]:
    if transform_error.kind is not ErrorKind.EMPTY_DESTINATION:
        kind = MappingErrorKind.INVALID_DESTINATION
        error = _make_error(kind, mapping, transform_error.message, transform_error.server_message, destination)
        yield replace(error, transform=transform_error)
    elif destination.weight:
        message = f"a publish to `{mapping.source}` kills the server: the mapping has no destination subject"
        yield _make_error(MappingErrorKind.PANICS, mapping, message, "", destination)


def _make_identity_transform(source: str) -> SubjectTransform | TransformError:
    if "*" not in source and "{{" not in source and "$" not in source.removeprefix("$JS."):
        # Nothing can be wrong with it, and every rule that names clusters has one.
        return SubjectTransform(source=source, destination=source, steps=tuple(source.split(SEPARATOR)))
    return SubjectTransform.parse(source, numbered_wildcards(source))


def _add_remainders(mapping: MappingRule, routes: Mapping[str, list[Route]]) -> Iterator[MappingError]:
    """
    Give what the weights of each cluster leave back to the source.

    Not if the source is a destination itself, in whatever cluster: the user
    wants loss, says the server.
    """
    source = mapping.source
    all_routes = (route for cluster_routes in routes.values() for route in cluster_routes)
    if any(route.destination and route.destination.subject == source for route in all_routes):
        return
    for cluster_routes in routes.values():
        remainder = _PERCENT - sum(route.weight for route in cluster_routes)
        if not remainder:
            continue
        identity = _make_identity_transform(source)
        if isinstance(identity, TransformError):
            message = f"weights leave {remainder} % to the source, which cannot be a destination: {identity.message}"
            kind = MappingErrorKind.INVALID_REMAINDER
            yield replace(_make_error(kind, mapping, message, identity.server_message), transform=identity)
            return
        cluster_routes.append(Route(weight=remainder, transform=identity, destination=None))
