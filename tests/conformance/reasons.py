"""Why an operation is expected not to work: every failure has to be one of these, or the run fails."""

from __future__ import annotations

REASONS: dict[str, tuple[str, str]] = {
    "10056 stream name in subject does not match request": (
        "10056",
        (
            "Creating a consumer: the request's body names the virtual stream, the mapped subject the physical one, and servers "
            "refuse the pair. Bind to [consumers of the topology](topology.md), let an `ordered` stream say "
            "[`virtual_name: order`](consistency.md#an-order-that-carries-the-virtual-name), or use `routing: accounts`."
        ),
    ),
    "10059 stream not found": (
        "10059",
        "Deleting and purging are not mapped: they would change one region only, and come back from the others.",
    ),
    "10060 expected stream does not match": (
        "10060",
        (
            "The stream that takes the publish is called otherwise: in one account no two can be `foo`. `routing: accounts` keeps "
            "the name; [why `domains` does not](routing.md#how-domains-works)."
        ),
    ),
    "10071 wrong last sequence": (
        "10071",
        (
            "Compare-and-set with what was read: writes and reads are two streams, with sequences of their own. Choose `stretch` or "
            "`homed`."
        ),
    ),
    "accepted although there is one": (
        "accepted",
        (
            "**It is acknowledged, and was not compared.** `Nats-Expected-Last-Subject-Sequence-Subject` names virtual subjects, and "
            "the write stream holds physical ones: the servers find nothing there, whose last sequence is 0. Without that header, the "
            "message's own subject is compared, which works. Choose `stretch` or `homed`, or `routing: accounts`; there "
            "`virtual` and `ordered` compare within the region."
        ),
    ),
    "another key, or none": (
        "other",
        "A revision of the write stream, asked of the read stream or the order: another message has it there, or none.",
    ),
    "created twice": (
        "twice",
        "Each region compares with what was published there: `create` succeeds in each, and one of them overwrites the other.",
    ),
    "named physically": ("physical", "The acknowledgement names the stream that took the message, `foo-write-west`."),
    "0 copies": (
        "none",
        (
            "Publishes are renamed on their way to the stream: core subscribers of the virtual subject see none of them. Consume from "
            "the stream, or let it say [`core_subscribers`](buckets.md#core-subscribers), as the streams do here that were tried for "
            "this, where they can."
        ),
    ),
    "not found": (
        "no name",
        (
            "The client asks which stream has the subject, and none does under that name: read streams have no subjects with "
            "`mapped`, nor do mirrors with `regional`, nor what core subscribers hear with `domains` and `regional`. Name the stream where "
            "the client lets you; nats.py does not let you name that of an object store."
        ),
    ),
    "not listed": ("empty", "As `no name`; the client takes it for an empty store."),
    "not listed by its name": ("physical", "The list has the names of physical streams."),
    "no answer": (
        "no answer",
        (
            "Not shared with applications: the server refuses the publish or the subscription, and the client waits for its timeout. "
            "What changes a stream is not, and pushed messages reach `_INBOX.>` alone ([why](routing.md#how-it-works)). Servers before 2.14 "
            "do not know the request that resets a consumer, and answer nothing."
        ),
    ),
    "consumer reset requires server 2.14.0": ("2.14", "nats.js asks no older server."),
    "not all came": (
        "empty body",
        (
            "A pull of several messages ends, for the client, with one that has neither header nor body: servers take it for the end of "
            "what a service answers. What comes after it in that pull is delivered again after `ack_wait`. Messages that were "
            "sourced (`virtual`, `ordered`) have a header. In `stretch` and `homed` streams, publish a body or a header, pull one at "
            "a time, or use an ordered or a push consumer ([routing.md](routing.md#how-it-works))."
        ),
    ),
    "heartbeats missed": (
        "empty body",
        "The same, as nats.js has it: its pull is over for the servers, and it waits for their heartbeats in vain.",
    ),
    "copies keep it": (
        "origin only",
        (
            "The origin (of `named`, the order) deletes it, mirrors keep it; reads by the virtual name may be answered by either. Of a bucket, only what "
            "takes space stays: nobody reads what was deleted."
        ),
    ),
    "not tried": (
        "not tried",
        (
            "Beside publishes of others, `Nats-Expected-Last-Msg-Id` stops a stream with three replicas for good on 2.14.6 and "
            "2.15.1, not on 2.12.8: every replica logs `critical write error: last msgid mismatch`, and again after a restart. The "
            "streams here have one replica but for those in the stretch cluster. Do not use it."
        ),
    ),
}
"""What a run says (`place.reason`): what the table shows, and why it is so."""
