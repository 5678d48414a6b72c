"""
The accounts of `routing: domains`: what users may do, and what passes between regions.

Each region is a JetStream domain of its own, whose streams are in the account of clients: what is read is called like
the virtual stream, what is written stands beside it. One rule for each root sends publishes to the latter. Regions
are joined by leaf nodes through hubs, which pass on only what it takes to source a stream of another domain:
whatever else passed, such as acknowledgements, would reach the same names in the other regions.
"""

from __future__ import annotations

from vstream.topology.accounts import APP_USER, AUDIT_USER, PROBE_USER, VSTREAM_USER, Account, User
from vstream.topology.model import Role, Routing, Topology, VirtualStream
from vstream.topology.naming import API, CLIENT_ACCOUNT, PUBLISH_PREFIX
from vstream.topology.profiles import shared
from vstream.topology.profiles.profile import ProfileManual

PASSED = ("$JS.*.API.CONSUMER.CREATE.>", "$JSC.R.>", "$JS.S.>", "$JS.FC.>", "_GR_.>")
"""
All that leafs pass on, in both directions (server/stream.go, trySetupSourceConsumer): a consumer is asked for, that is
answered, messages are delivered, flow is controlled. The last is how gateways rename the place for an answer.
"""


class DomainsProfile(shared.WriteBesideReadProfile):
    """See the module."""

    routing = Routing.DOMAINS
    since = None
    operator_since = None
    publish_us = 8.0
    has_domains = True
    denied = ("$JS.*.API.>",)  # The API of another domain. That of their own clients reach without naming it.
    starter = """\
routing: domains            # a JetStream domain for each region, and a hub that joins it to the others: docs/routing.md
roots: [v.>]                # everything below belongs to virtual streams: one mapping rule for all of them
"""
    summary = "a JetStream domain per region; every client operation, at the least cost; not for streams with one order or origin"
    manual = ProfileManual(
        accounts="`APP` for clients and streams, one JetStream domain per region",
        streams="`west/foo-write`, `west/foo`",
        mapping_rules="one per root or subject (and 9 of the domain)",
        creating_consumers="**yes, also where a region is alone**",
        mirrored_consumers="no such streams: `virtual` only (VS136)",
        changing_streams="not as `app`, but for purging the region's copy of a bucket",
        core_subscribers="yes",
        users="rendered with their permissions, and `leaf` between servers",
        files=(
            "`accounts.cfg`, `passwords.cfg`, the same on every server; `hubs.cfg`, `hub-passwords.cfg` for hubs; "
            "`leaf-west.cfg` in the west"
        ),
        servers="tried with 2.11 to 2.15; one more server per region",
        runbooks="no",
    )

    def account_of(self, stream: VirtualStream, role: Role, place: str) -> str:
        """The region's domain."""
        return place

    def stream_accounts(self, topology: Topology) -> tuple[str, ...]:
        """One domain for each region."""
        return tuple(region.name for region in topology.regions)

    def account_of_reads(self, region: str) -> str:
        """See Profile."""
        return region

    def accounts(self, topology: Topology) -> tuple[Account, ...]:
        """The account of clients and streams, the same in every region."""
        return (
            Account(
                name=CLIENT_ACCOUNT, purpose="clients and streams", has_jetstream=True, users=_make_users(topology)
            ),
        )


def _make_users(topology: Topology) -> tuple[User, ...]:
    written = tuple(f"{PUBLISH_PREFIX}.{subject}" for subject, _ in shared.mapped_subjects(topology))
    reading = (*shared.READS, shared.PULLS, shared.GETS)
    # Of the region's own copy: what was deleted is so everywhere by its marker, and only its bytes stay elsewhere.
    purged = [shared.purge_subject(stream) for stream in topology.streams if stream.is_bucket]
    return (
        shared.make_user(
            APP_USER,
            (*written, *reading, *purged),
            denied=shared.write_stream_api_subjects(topology, [region.name for region in topology.regions]),
            hears=shared.core_subscriptions(topology),
        ),
        shared.make_user(VSTREAM_USER, (*written, *shared.MANAGED, "$JS.ACK.>", shared.WHO_AM_I)),
        shared.make_user(
            PROBE_USER,
            (
                *shared.canary_subjects(topology, PUBLISH_PREFIX),
                *reading,
                f"{API}.STREAM.MSG.DELETE.*",
                shared.WHO_AM_I,
            ),
        ),
        shared.make_user(AUDIT_USER, (*reading, shared.WHO_AM_I)),
    )
