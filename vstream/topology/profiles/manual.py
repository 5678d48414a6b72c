"""What docs/routing.md says of a routing profile."""

from __future__ import annotations

from vstream.value_class import value_class


@value_class
class ProfileManual:
    """The profile's column in the table: Markdown, one field a row."""

    accounts: str
    streams: str
    mapping_rules: str
    creating_consumers: str
    mirrored_consumers: str
    changing_streams: str
    core_subscribers: str
    users: str
    files: str
    servers: str
    runbooks: str
