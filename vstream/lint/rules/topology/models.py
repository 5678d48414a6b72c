"""What a virtual stream can promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.subject import TopologySubject


@rule("VS105", "model-not-available", Severity.ERROR)
def model_not_available(subject: TopologySubject) -> Iterator[Finding]:
    """
    The topology asks for a consistency model that this version of vstream does not run.

    ## Why is this bad?
    The language has words for `ordered`, `stretch` and `homed` streams and for the
    stretch cluster; this version renders `virtual` streams only, and doing
    something else in silence would be worse than refusing.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], consistency: homed, write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], consistency: virtual, write: {max_age: 1h}}
    ```
    """
    hint = "this version of vstream renders `virtual` streams only"
    if subject.document.stretch is not None:
        yield Finding(at=("stretch",), message="a stretch cluster is not available yet", hint=hint, on_key=True)
    for name, stream in subject.document.streams.items():
        if stream.consistency != "virtual":
            yield Finding(
                at=("streams", name, "consistency"),
                message=f"consistency `{stream.consistency}` is not available yet",
                hint=hint,
            )


@rule("VS125", "key-value-diverges", Severity.WARNING)
def key_value_diverges(subject: TopologySubject) -> Iterator[Finding]:
    """
    A key/value bucket or an object store is to be a virtual stream.

    ## Why is this bad?
    Two regions that write the same key at the same time see the two writes in
    different orders, and keep different values for ever. `create` succeeds in
    several regions at once, and `update` compares revisions of two different
    streams. Buckets whose keys are each written in one region only are safe.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      KV_users: {subjects: ["$KV.users.>"], write: {max_age: 1h}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}}
    streams:
      users: {subjects: ["users.>"], write: {max_age: 1h}}
    ```
    """
    for name, stream in subject.document.streams.items():
        for index, one in enumerate(stream.subjects):
            root = one.partition(".")[0]
            if root in _BUCKETS:
                yield Finding(
                    at=("streams", name, "subjects", index),
                    message=f"{_BUCKETS[root]} over several regions diverges where two of them write the same key",
                    hint="write each key in one region only, or keep the bucket out of the topology",
                )


_BUCKETS = {"$KV": "a key/value bucket", "$O": "an object store"}
