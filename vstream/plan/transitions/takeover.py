"""
A plain stream that a virtual one takes over while clients publish.

The read streams source it, too, until they have everything of it; then the mappings send publishes to the write streams,
server after server. Each publish goes to exactly one of the two, and both are sourced: nothing is lost, nothing doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.gates import Gate, GateKind
from vstream.plan.plan import Blocked
from vstream.plan.transitions.change_consistency import is_own_origin
from vstream.subjects.algebra import is_subset
from vstream.topology.stream_config import FORMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream


def block_takeovers(desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]) -> Iterator[Blocked]:
    """Read streams whose plain stream is not there, or holds what the virtual stream does not have."""
    for stream in desired:
        plain = stream.takes_over
        if plain is None or plain.startswith(FORMER_PREFIX):
            continue  # of the topology itself, in the layout that it moves away from
        found = observed.get(plain)
        if found is None:
            yield Blocked(
                name=stream.config.name,
                region=stream.region,
                reason=f"it takes over `{plain}`, which does not exist, or does not answer",
                hint="take `takes_over` out of the topology if everything has been taken over",
            )
            continue
        listed = found.config.fields.get("subjects")
        outside = [
            str(one)
            for one in (listed if isinstance(listed, list) else [])
            if not any(is_subset(str(one), subject) for subject in stream.subjects)
        ]
        if outside or not (found.config.owner is None or is_own_origin(stream, found)):
            what = f"listens on `{outside[0]}`, too" if outside else f"belongs to the topology `{found.config.owner}`"
            yield Blocked(
                name=stream.config.name,
                region=stream.region,
                reason=f"it takes over `{plain}`, which {what}",
                hint="a plain stream is taken over as a whole, by a stream with all of its subjects",
            )


def streams_taken_over(desired: Sequence[RenderedStream]) -> set[str]:
    """The plain streams that are taken over, which stay until the topology does not name them any more."""
    return {stream.takes_over for stream in desired if stream.takes_over is not None}


def takeover_gates(
    desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream], *, is_mapping: bool
) -> Iterator[Gate]:
    """Before clients are sent to the read streams, these hold what the plain stream holds."""
    for stream in desired:
        if is_mapping and stream.takes_over is not None and stream.takes_over in observed:
            yield Gate(kind=GateKind.FED, stream=stream.config.name, others=(stream.takes_over,))


def without_missing_streams(gates: Sequence[Gate], known: Collection[str]) -> Iterator[Gate]:
    """*gates* but for those that would wait until a stream is drained that does not exist any more."""
    return (gate for gate in gates if gate.kind is not GateKind.DRAINED or gate.stream in known)
