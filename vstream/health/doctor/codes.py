"""The findings of `vstream doctor`: their codes, what they weigh, and their manual."""

from __future__ import annotations

import inspect
from typing import Final

from vstream.codes import Chapter, Page, render_manual
from vstream.diagnostics import Severity

_WARNING, _NOTE = Severity.WARNING, Severity.NOTE


def _page(code: str, name: str, text: str, severity: Severity = Severity.ERROR) -> Page:
    return Page(code=code, name=name, severity=severity, text=inspect.cleandoc(text))


PAGES: Final = (
    _page(
        "VD101",
        "doubles-on-restart",
        """
        A stream doubles what it sources when its leader restarts or changes.

        ## Why is this bad?
        It has a stream-level `subject_transform`, and sources with a `filter_subject`. To find out how far it had come,
        a new leader looks for messages on the filtered subject among its own, which have the transformed one. It finds
        none and begins again: from 2.11.12, 2.12.3 and 2.14 on at every change of the leader; on 2.15 after a crash.
        If its first messages have expired, it begins at its last message instead, and skips for good what was late.

        ## What to do
        Give each source its own `subject_transforms`, without `filter_subject`, and remove the stream's
        `subject_transform`: what `vstream render` writes. A changed source begins from its start: set `opt_start_seq` to
        one more than its position, or the update doubles everything once.
        """,
    ),
    _page(
        "VD102",
        "goes-back",
        """
        A stream that keeps few messages of a subject can go back to old values when its server restarts.

        ## Why is this bad?
        Before 2.15, servers find their position in a source among the messages that they have of it. Where a later
        value of another region has replaced the last one, older values are sourced again, and become the newest.

        ## What to do
        Upgrade to 2.15, which stores positions. Until then run `vstream beacon`: a small message of each origin on a
        subject of its own stays, and pins the position.
        """,
        _WARNING,
    ),
    _page(
        "VD201",
        "dead-source",
        """
        A stream has not heard one of its sources for a while, although that one answers.

        ## Why is this bad?
        Nothing arrives, and servers report a lag of 0. After an outage, servers try again after 10 s, then later and
        later, up to two minutes; a link or gateway that is cut stays so.

        ## What to do
        `vstream resync` makes its leader hand over: the next one asks at once. If that does not help, look for VD401,
        and for the permissions of the account.
        """,
    ),
    _page(
        "VD202",
        "no-source",
        """
        A stream does not take from an origin that the topology gives it.

        ## Why is this bad?
        What is published in that region never arrives here.

        ## What to do
        `vstream plan` shows the difference, `vstream apply` adds the source. It is filled from the beginning.
        """,
    ),
    _page(
        "VD203",
        "stuck-source",
        """
        A message has been waiting for long, although its source is heard.

        ## Why is this bad?
        Sourcing goes on, but not for this message: it was skipped, or the source is stuck. Servers report a lag of 0.

        ## What to do
        `vstream resync`. If the message still does not come, it was skipped: `vstream repair` shows all that are missing,
        and with `--yes` puts them in.
        """,
    ),
    _page(
        "VD204",
        "skipped",
        """
        A stream has passed messages of an origin without taking them, and the origin still has them.

        ## Why is this bad?
        They will never arrive by themselves, and servers report a lag of 0. Only the newest messages are looked at:
        there may be more.

        ## What to do
        `vstream repair --kind replay` shows all that are missing in each region, and with `--yes` puts them in, at the
        end of the read stream. Causes: the layout of VD101 after an outage, an `opt_start_seq` or a source that was
        removed and added again, or one `Nats-Msg-Id` used in two regions while the stream deduplicates.
        """,
    ),
    _page(
        "VD205",
        "started-over",
        """
        A stream took messages of an origin again that it had taken before.

        ## Why is this bad?
        It holds them twice, and so do its consumers get them. Only the newest messages are looked at: there may be more.

        ## What to do
        `vstream repair --kind delete` shows everything that is doubled, and with `--yes` deletes the copies. Causes: the
        layout of VD101 when a leader changed, a source that was removed and added again or changed without `opt_start_seq`, a server that went back to an older snapshot of its data.
        """,
    ),
    _page(
        "VD301",
        "rolled-back",
        """
        A write stream ends before what its readers have taken.

        ## Why is this bad?
        It has lost its end: power was lost before it was written to disk, or it was restored from a backup. Its next
        messages get sequences that readers believe they have: they are acknowledged, and skipped everywhere else.
        `lag` is 0.

        ## What to do
        Stop publishing in that region, and run `vstream repair`: it shows, and with `--yes` publishes, what is gone, as
        the other regions' read streams hold it, under the sequences that it had. Readers pass what they have, those that
        lacked it take it, and what is published next arrives. Each message names the one before it: if somebody else
        publishes meanwhile, the repair stops, and nothing is overwritten. Sequences that nobody holds, such as those of
        probes, are filled on the stream's `canary` subject; without one, the sequence can be moved by
        `nats stream purge NAME --seq POSITION+1`, which drops what slower readers have not taken.
        `sync_interval: always` prevents the first cause.
        """,
    ),
    _page(
        "VD302",
        "lost-to-retention",
        """
        An origin has dropped messages that a reader had not taken.

        ## Why is this bad?
        They are gone for that region: the outage was longer than the write stream keeps messages. Canaries of a probe that were
        removed look the same.

        ## What to do
        Other regions may have them in their read streams: `vstream repair --kind replay` shows which, and with `--yes`
        puts them in. Raise `max_age` of write streams above the longest outage that is to lose nothing.
        """,
    ),
    _page(
        "VD303",
        "retention-margin",
        """
        More than half of the time has passed in which an outage loses nothing.

        ## Why is this bad?
        When the rest has passed, the write stream drops messages that a region has not taken.

        ## What to do
        Raise `max_age` (and `max_bytes`) of the write streams now: it works while a region is down, and is the only way to
        win time.
        """,
        _WARNING,
    ),
    _page(
        "VD401",
        "no-gateway",
        """
        A server has no gateway connection to a cluster of the topology that answers.

        ## Why is this bad?
        What its clients ask of the other region, and what its streams source from there, does not pass. Clusters do not
        route through a third one.

        ## What to do
        Check the network, the `gateway` block, and `advertise`. A gateway that waits for an address that is wrong can do so
        for an hour: restart that server.
        """,
    ),
    _page(
        "VD402",
        "half-reloaded",
        """
        Servers have loaded different mapping rules, or other accounts.

        ## Why is this bad?
        A publish is mapped by the server that its client is connected to: some clients write into the right stream, and
        others nowhere, without an error where they do not wait for an acknowledgement.

        ## What to do
        Put `mappings.cfg` (with `routing: accounts`: `accounts.cfg`) on every server and reload each: `nats-server --signal
        reload`. A reload is refused as a whole if anything in the file cannot be reloaded, such as `gateway`: the server's log
        says so. What a new account imports is served from the second reload on.
        """,
    ),
    _page(
        "VD403",
        "other-rules",
        """
        All servers have loaded mapping rules or accounts, and they are not those of the topology.

        ## Why is this bad?
        Clients are sent where the topology does not mean them to go, or nowhere.

        ## What to do
        `vstream render`, put `mappings.cfg` (or `accounts.cfg`) on every server, reload. `vstream plan` shows each rule, and of
        accounts each import and export.
        """,
    ),
    _page(
        "VD404",
        "server-away",
        """
        A server does not answer.

        ## Why is this bad?
        Streams with three replicas survive one in each region, not two; the meta group counts it until it is removed.

        ## What to do
        Start it. If it is gone for good, remove it from the meta group: `nats server raft peer-remove NAME`.
        """,
    ),
    _page(
        "VD405",
        "jetstream-off",
        """
        JetStream is switched off on a server of the topology.

        ## Why is this bad?
        Servers do so when a write to disk fails, and do not switch it on again when there is space.

        ## What to do
        Make space, then restart the server.
        """,
    ),
    _page(
        "VD406",
        "no-meta-leader",
        """
        The JetStream meta group has no leader that servers agree on.

        ## Why is this bad?
        Without it there are no new consumers, and streams cannot be made or changed. Publishing, Direct Get and consumers
        that exist go on.

        ## What to do
        The majority of all servers must run and reach each other. After the loss of a majority for good, 2.15 can be told
        to go on with fewer: `$JS.API.META.RESCUE`.
        """,
    ),
    _page(
        "VD407",
        "meta-shape",
        """
        The meta group has other members than the topology has servers, or one region can stop it.

        ## Why is this bad?
        Members that are gone count for the majority. If one region holds half of them or more, its loss stops the API
        everywhere.

        ## What to do
        Remove members that are gone (`nats server raft peer-remove NAME`). Have three regions or more with as many
        servers each.
        """,
        _WARNING,
    ),
    _page(
        "VD408",
        "mixed-versions",
        """
        Servers run different versions.

        ## Why is this bad?
        Nothing, during a rolling upgrade. Left so, behaviour depends on which server leads: how positions in sources are
        found, whether `duplicate_window: 0` means off.

        ## What to do
        Finish the upgrade.
        """,
        _NOTE,
    ),
    _page(
        "VD409",
        "unread-server",
        """
        No monitoring address leads to a server.

        ## Why is this bad?
        Which mapping rules it has loaded, and whether it has its gateways, is not known.

        ## What to do
        Add its monitoring address to `monitor` under `connect`.
        """,
        _NOTE,
    ),
    _page(
        "VD410",
        "config-not-loaded",
        """
        The configuration file of a server is not what the server runs with.

        ## Why is this bad?
        It was edited and not loaded, or a reload was refused: as a whole, if anything in the file cannot be reloaded (`gateway`,
        `listen`, `server_name`, …). With the next restart the server does something else than now.

        Compared is the digest that servers from 2.12 on give of what they have loaded (`config_digest` in `/varz`). It covers every
        value of the file and of all that it includes, with comments, order and spelling left out; values that depend on the
        server's environment cannot be known here (VD413). Files are read where a lab runs, or where `--configs` says they are.

        ## What to do
        `nats-server --signal reload`, and look into its log: `Failed to reload server configuration` says what cannot be. Then put
        that back, or restart the server when it suits. `nats-server -t -c FILE` prints the digest of a file.
        """,
        _WARNING,
    ),
    _page(
        "VD411",
        "other-flags",
        """
        Servers run with different feature flags.

        ## Why is this bad?
        Some flags (`js_raft_delete_range`, `js_snapshot_sources`) change what servers of a cluster send each other: one that does
        not know it fails, or refuses it. Others (`js_ack_fc_v2`) change what clients see, and permissions must allow: it then
        depends on the server that a client is connected to. Servers of different versions may have different defaults.

        ## What to do
        The same `feature_flags` in all configurations, and none that a server of the cluster does not know yet: finish the
        upgrade first.
        """,
        _WARNING,
    ),
    _page(
        "VD412",
        "too-old",
        """
        A server is older than the `server_version` that the topology promises.

        ## Why is this bad?
        What vstream renders for newer servers is refused there, or ignored: a stream that this server leads then does something
        else. `plan` and `apply` refuse to work over a connection to it.

        ## What to do
        Upgrade it, or say the older version in the topology and look at what `vstream validate` says then.
        """,
    ),
    _page(
        "VD413",
        "unread-config",
        """
        The configuration file of a server could not be compared with what it runs.

        ## Why is this bad?
        Nothing: whether the file was loaded is just not known. It is missing where `--configs` says, cannot be parsed, depends on
        the environment of the server, or the server is older than 2.12.

        ## What to do
        For a file with variables: run `nats-server -t -c FILE` in the server's environment, and compare the digest that it prints
        with `config_digest` in `/varz`.
        """,
        _NOTE,
    ),
    _page(
        "VD414",
        "little-room",
        """
        JetStream of a server has used more than four fifths of the storage that it may use.

        ## Why is this bad?
        When it is full, streams there refuse every publish ("insufficient resources"), read streams take nothing any more, and no
        stream can be made. Without `max_file_store` the limit is three quarters of what was free when the server started.

        ## What to do
        Raise `max_file_store`, which takes a restart, or lower `max_age` and `max_bytes` of streams.
        """,
        _WARNING,
    ),
    _page(
        "VD501",
        "overflowed",
        """
        A stream lives in another cluster than the topology says.

        ## Why is this bad?
        Servers place a stream elsewhere when it does not fit and no `placement` forbids it. Its region's clients then write or
        read over the WAN, and lose it with another region.

        ## What to do
        `vstream plan` shows the difference in `placement`; applying it moves the stream while it works.
        """,
    ),
    _page(
        "VD502",
        "no-stream",
        """
        A stream of the topology does not exist.

        ## What to do
        `vstream plan` shows it, `vstream apply` makes it.
        """,
    ),
    _page(
        "VD503",
        "no-leader",
        """
        A stream has no leader, or no server answers for it.

        ## Why is this bad?
        Nothing can be written to it, and it takes nothing. Direct Get still works where a replica is up.

        ## What to do
        The majority of its replicas must run: see VD404.
        """,
    ),
    _page(
        "VD504",
        "few-replicas",
        """
        Replicas of a stream are away, or have not caught up.

        ## Why is this bad?
        It survives one loss less.

        ## What to do
        Look for VD404 and VD405; a replica that never catches up is built anew by `nats stream cluster peer-remove`.
        """,
        _WARNING,
    ),
    _page(
        "VD505",
        "no-consumer",
        """
        A consumer of the topology does not exist.

        ## Why is this bad?
        Clients that bind to it there fail, and while the region is cut off nobody can create it.

        ## What to do
        `vstream plan` shows it, `vstream apply` makes it. It begins as its `deliver_policy` says.
        """,
    ),
    _page(
        "VD506",
        "silent-consumer",
        """
        A consumer of the topology does not answer, although its stream does.

        ## Why is this bad?
        Its clients get no messages. A consumer has replicas of its own: it may have lost its leader alone.

        ## What to do
        Start the servers that are away (VD404). If all run, have it elect a leader: `nats consumer cluster step-down`.
        """,
    ),
    _page(
        "VD507",
        "foreign-account",
        """
        In operator mode, servers have loaded another token of an account than the topology's.

        ## Why is this bad?
        Somebody who has a key that servers trust has pushed it. It may let users do what they may not, or import what was
        never meant for them; or it is one of an earlier topology.

        ## What to do
        `vstream plan` shows what is different, `vstream apply` pushes the topology's own token to every server. If it was
        signed by a key that is not yours, find out whose it is: servers trust those that operator.cfg names.
        """,
    ),
    _page(
        "VD508",
        "cannot-write",
        """
        Servers cannot write to a stream, a consumer or a Raft group, and have given it up.

        ## Why is this bad?
        JetStream is on, and `/jsz` and STREAM.INFO say nothing of it; publishes have no answer, or are refused. If a disk is full, or a file
        could not be written, the replica refuses everything until its server is restarted, also when there is space again.

        `last msgid mismatch` is another thing: on 2.14.6 and 2.15.1, one publish with the header `Nats-Expected-Last-Msg-Id` beside those of
        other clients stops a stream with several replicas for good. It is in the log of all replicas: a restart comes to the same, and so does
        a smaller number of replicas (2.12.8 refuses the publish, as it should).

        Servers say this only of what has several replicas. Of a stream with one, a publish that is refused is the only sign:
        `vstream probe` and `vstream beacon` publish.

        ## What to do
        Make space, then restart the servers that are named, one after the other.

        After `last msgid mismatch`: stop whoever sends the header. Wait until `vstream status` shows that every region has all of the
        stream; what it had stored can still be read. Then delete it (`nats stream rm NAME`) and make it anew (`vstream apply`, which
        lets it begin behind what was taken of the old one).
        """,
    ),
)  # fmt: skip

BY_CODE: Final = {page.code: page for page in PAGES}

CHAPTER: Final = Chapter(title="Doctor", pages=PAGES)
"""The manual of `vstream doctor`."""


def markdown() -> str:
    """The manual of `vstream doctor`, as docs/doctor.md has it."""
    return render_manual("Doctor", "What `vstream doctor` reports of a live system.", [CHAPTER])
