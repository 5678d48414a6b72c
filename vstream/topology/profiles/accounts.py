"""`routing: accounts`: one account for clients, hidden ones for each region, in which streams carry the virtual name."""

from __future__ import annotations

from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.syntax.document import Json
from vstream.topology import naming
from vstream.topology.accounts import Account
from vstream.topology.model import Naming, Role, Routing, Topology, VirtualStream
from vstream.topology.profiles import hidden_accounts, mapped
from vstream.topology.profiles.profile import Profile, ProfileManual, second_layout
from vstream.topology.profiles.shared import ACKS, mapped_subjects


class AccountsProfile(Profile):
    """See the module."""

    routing = Routing.ACCOUNTS
    publish_us = 25.0
    has_hidden_accounts = True
    may_name_account = True
    has_roots = True
    rules_lead_to = f"{naming.REGION_PREFIX}."
    since = (2, 11)
    operator_since = (2, 12)
    starter = """\
routing: accounts           # hidden accounts for each region, docs/routing.md; servers include accounts.cfg and passwords.cfg
roots: [v.>]                # everything below belongs to virtual streams: one mapping rule for all of them
"""
    summary = (
        "one account for clients and hidden ones per region; every client operation works, and the cost does not "
        "grow with the number of streams"
    )
    manual = ProfileManual(
        accounts=(
            "`APP` for clients; hidden `W_west` (publishes) and `R_west` (reads) for each region, `S_stretch` for the"
            " stretch cluster"
        ),
        streams="`W_west/foo`, `R_west/foo`",
        mapping_rules="3, and one per root or subject",
        creating_consumers="**yes**: pull, push, ordered, durable or not",
        mirrored_consumers="**in the client's region**, on its copy",
        changing_streams="never, but for [purging buckets](buckets.md#what-is-deleted)",
        core_subscribers="yes",
        users="rendered with their permissions",
        files="`accounts.cfg`, `passwords.cfg`, the same on every server",
        servers="2.11 and newer",
        runbooks="no: they say what to do instead",
    )

    def account_of(self, stream: VirtualStream, role: Role, place: str) -> str:
        """The region's account for what is written, or for what is read."""
        return hidden_accounts.account_of(stream, role, place)

    def stream_accounts(self, topology: Topology) -> tuple[str | None, ...]:
        """Those for what is written, for what is read, of the stretch cluster, and what the topology moves away from."""
        return hidden_accounts.stream_accounts(topology)

    def account_of_reads(self, region: str) -> str:
        """See Profile."""
        return naming.account_of_reads(region)

    def write_subjects(self, topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
        """As clients publish: the account tells regions apart."""
        return stream.subjects

    def stored_subject(self, kind: Naming, stream: VirtualStream, region: str, subject: str) -> str:
        """See Profile."""
        return subject

    def published_subject(self, kind: Naming, subject: str) -> str:
        """See Profile."""
        return subject

    def source_transforms(self, topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
        """None: subjects are stored as clients publish them."""
        return ()

    def republish(self, role: Role) -> Json:
        """What a region's write streams store; the account of clients imports it."""
        return {"src": ">", "dest": f"{naming.REPUBLISH_PREFIX}.>"} if role is Role.WRITE else None

    def accounts(self, topology: Topology) -> tuple[Account, ...]:
        """See `hidden_accounts`; while the topology moves here, that of clients has streams that feed the others."""
        former = second_layout(topology)
        if former is None:
            return hidden_accounts.accounts(topology)
        return mapped.MappedProfile().join_accounts(topology, former, clients_in=topology)

    def mapping_rules(self, topology: Topology) -> tuple[MappingRule, ...]:
        """Three rules, and one for each root."""
        everywhere = tuple(region.name for region in topology.regions)
        constant = ((subject, everywhere) for subject in (f"{naming.API}.>", *ACKS))
        return tuple(
            _region_rule(topology, subject, regions) for subject, regions in (*constant, *mapped_subjects(topology))
        )


def _region_rule(topology: Topology, subject: str, regions: tuple[str, ...]) -> MappingRule:
    """What clients of a region send on *subject* goes to that region's accounts."""
    spelled = naming.with_placeholders(subject)
    destinations = []
    for region in regions:
        regional = f"{naming.REGION_PREFIX}.{region}.{spelled}"
        destinations.append(Destination(subject=regional, cluster=topology.region(region).cluster))
    return MappingRule(source=subject, destinations=tuple(destinations))
