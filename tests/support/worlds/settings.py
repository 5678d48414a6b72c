"""How the streams of worlds are set, and what that means for what can be proven of them."""

from __future__ import annotations

from dataclasses import dataclass

REGIONS = ("west", "central", "east")
Version = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Of one virtual stream."""

    name: str
    fields: str
    """As a topology has them."""
    since: Version = (2, 10)
    is_bucket: bool = False
    reads_keep_all: bool = True
    """Whether read streams remove nothing within the time of a test."""
    writes_keep_all: bool = True
    """Whether no limit of a write stream, but for its age, explains that a message is gone."""
    has_ttls: bool = False
    is_counter: bool = False
    rolls_up: bool = False
    keeps: int | None = None
    """Messages of one subject in read streams."""


SETTINGS = (
    Setting(name="plain", fields=""),
    Setting(name="in-memory", fields="storage: memory"),
    Setting(name="long-age", fields="read: {max_age: 30d}"),
    Setting(name="windows", fields="write: {duplicate_window: 30s}, read: {duplicate_window: 100ms}"),
    Setting(name="history", fields="read: {max_msgs_per_subject: 3}", reads_keep_all=False, keeps=3),
    Setting(name="latest", fields="read: {max_msgs_per_subject: 1, max_age: 30d}", reads_keep_all=False, keeps=1),
    Setting(name="short-age", fields="read: {max_age: 2s}", reads_keep_all=False),
    Setting(name="count", fields="read: {max_msgs: 40}", reads_keep_all=False),
    Setting(name="write-count", fields="write: {max_msgs: 10}", writes_keep_all=False),
    Setting(name="ttl", fields="allow_msg_ttl: true", since=(2, 11), has_ttls=True),
    Setting(name="roll-ups", fields="allow_rollup: true", reads_keep_all=False, writes_keep_all=False, rolls_up=True),
    Setting(name="counter", fields="counters: true, write: {max_age: unlimited}", since=(2, 12), is_counter=True),
    Setting(
        name="kv", fields="writers: one-per-key", is_bucket=True, reads_keep_all=False, writes_keep_all=False,
        rolls_up=True, keeps=1,
    ),
    Setting(
        name="kv-history", fields="history: 5, writers: one-per-key", is_bucket=True, reads_keep_all=False,
        writes_keep_all=False, rolls_up=True, keeps=5,
    ),
)  # fmt: skip


def write_topology(name: str, version: Version, settings: dict[str, Setting]) -> str:
    """A topology with a virtual stream for each of *settings*, by its name."""
    regions = ", ".join(f"{region}: {{servers: 1}}" for region in REGIONS)
    streams = [
        f"  {world}: {{subjects: [{world}.>], {setting.fields}}}"
        for world, setting in settings.items()
        if not setting.is_bucket
    ]
    buckets = [f"  {world}: {{{setting.fields}}}" for world, setting in settings.items() if setting.is_bucket]
    lines = [
        "version: 1",
        f"name: {name}",
        f'server_version: "{version[0]}.{version[1]}"',
        f"regions: {{{regions}}}",
        "defaults: {write: {max_age: 1h}}",
    ]
    return "\n".join(
        [*lines, *(["streams:", *streams] if streams else []), *(["kv:", *buckets] if buckets else []), ""]
    )
