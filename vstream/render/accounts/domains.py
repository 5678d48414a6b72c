"""
The accounts of `routing: domains`: what users may do, and what passes between regions.

Each region is a JetStream domain of its own, whose streams are in the account of clients: what is read is called like
the virtual stream, what is written stands beside it. One rule for each root sends publishes to the latter. Regions
are joined by leaf nodes through hubs, which pass on only what it takes to source a stream of another domain:
whatever else passed, such as acknowledgements, would reach the same names in the other regions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.render.accounts.accounts import GETS, INBOX, PULLS, READS, mapped_subjects
from vstream.render.accounts.extras import core_subscriptions, purge_subject
from vstream.render.accounts.shared_subjects import WHO_AM_I, canaries, write_stream_api_subjects
from vstream.topology.accounts import APP_USER, AUDIT_USER, PROBE_USER, VSTREAM_USER, Account, User, password_variable
from vstream.topology.naming import API, CLIENT_ACCOUNT, PUBLISH_PREFIX

if TYPE_CHECKING:
    from vstream.topology.model import Topology

PASSED = ("$JS.*.API.CONSUMER.CREATE.>", "$JSC.R.>", "$JS.S.>", "$JS.FC.>", "_GR_.>")
"""
All that leafs pass on, in both directions (server/stream.go, trySetupSourceConsumer): a consumer is asked for, that is
answered, messages are delivered, flow is controlled. The last is how gateways rename the place for an answer.
"""
DENIED = ("$JS.*.API.>",)
"""What clients may not publish: the API of another domain. That of their own they reach without naming it."""


def account(topology: Topology) -> Account:
    """The account of clients and streams, the same in every region."""
    return Account(name=CLIENT_ACCOUNT, purpose="clients and streams", has_jetstream=True, users=_users(topology))


def _users(topology: Topology) -> tuple[User, ...]:
    written = tuple(f"{PUBLISH_PREFIX}.{subject}" for subject, _ in mapped_subjects(topology))
    reading = (*READS, PULLS, GETS)
    # Of the region's own copy: what was deleted is so everywhere by its marker, and only its bytes stay elsewhere.
    purged = [purge_subject(stream) for stream in topology.streams if stream.is_bucket]
    return (
        _user(
            APP_USER,
            "applications: publish and read virtual streams",
            (*written, *reading, *purged),
            write_stream_api_subjects(topology, [region.name for region in topology.regions]),
            core_subscriptions(topology),
        ),
        _user(VSTREAM_USER, "plan, apply, resync and labs", (*written, f"{API}.>", "$JS.ACK.>", WHO_AM_I)),
        _user(
            PROBE_USER,
            "vstream probe",
            (*canaries(topology, PUBLISH_PREFIX), *reading, f"{API}.STREAM.MSG.DELETE.*", WHO_AM_I),
        ),
        _user(AUDIT_USER, "vstream audit: reads every stream, changes none", (*reading, WHO_AM_I)),
    )


def _user(
    name: str, purpose: str, publish: tuple[str, ...], denied: tuple[str, ...] = (), heard: tuple[str, ...] = ()
) -> User:
    return User(
        name=name,
        password_variable=password_variable(name),
        purpose=purpose,
        publish=tuple(dict.fromkeys(publish)),
        subscribe=(INBOX, *heard),
        denied=denied,
    )
