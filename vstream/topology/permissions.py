"""The least permissions of each command: the subjects that its user publishes and subscribes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vstream.topology import naming
from vstream.topology.model import Topology
from vstream.topology.naming import API
from vstream.topology.profiles import profile_of, shared
from vstream.value_class import value_class

_PLAN = ("STREAM.LIST", "CONSUMER.LIST.*")
_STATUS = ("STREAM.INFO.*", "CONSUMER.INFO.>", "DIRECT.GET.>")
_CHANGE = ("STREAM.CREATE.*", "STREAM.UPDATE.*", "STREAM.DELETE.*")
_RESYNC = ("STREAM.INFO.*", "STREAM.LEADER.STEPDOWN.*")
_APPLY = (
    *_PLAN,
    *_CHANGE,
    *_RESYNC,
    *("STREAM.NAMES", "STREAM.MSG.GET.*", "DIRECT.GET.>"),
    *("CONSUMER.CREATE.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>"),
)
MANAGED: Final = {
    "plan": _PLAN,
    **dict.fromkeys(("apply", "region"), _APPLY),
    "plan --drift": (*_PLAN, *_STATUS),
    **dict.fromkeys(("status", "export", "doctor"), _STATUS),
    "probe": ("STREAM.INFO.*", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*"),
    "audit": (*shared.LOOKS, *shared.READS_ALL),
    "repair sources": _RESYNC,
    "repair messages": (*_STATUS, *_RESYNC),
    "consumer": (*_STATUS, "STREAM.MSG.GET.*", "CONSUMER.CREATE.>", "CONSUMER.DELETE.>"),
    "map --trace": (),
    "doctor --bundle": (*_PLAN, *_STATUS),
    "backup take": ("STREAM.INFO.*", "STREAM.MSG.GET.*", "CONSUMER.LIST.*", "STREAM.SNAPSHOT.*", *shared.READS_ALL),
    "backup restore": (
        *("STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.>", "CONSUMER.LIST.*"),
        *("STREAM.RESTORE.*", "STREAM.UPDATE.*", "STREAM.DELETE.*"),
        *shared.READS_ALL,
    ),
}
"""By command, its requests to the accounts with streams."""
_REPAIRS_CONTENTS: Final = (
    *_CHANGE,
    *("STREAM.LIST", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*", "STREAM.PURGE.*"),
    *("CONSUMER.CREATE.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>"),
)
"""Additional requests of `repair messages` where it also repairs the contents of streams."""
AS_CLIENT: Final = {
    **dict.fromkeys(("plan --drift", "status", "export", "doctor", "repair messages", "doctor --bundle"), ("INFO",)),
    "probe": (
        *("STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.>"),
        *("CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>"),
    ),
}
"""Its requests by virtual names, as clients send them."""
_NEVER_ASKS_WHO_IT_IS: Final = frozenset({"repair sources", "map --trace", "backup take", "backup restore"})
COMMANDS: Final = tuple(MANAGED)


@value_class
class Permissions:
    """The subjects that a user may publish and subscribe to, as servers see them: after mapping."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions_for(topology: Topology, commands: Iterable[str]) -> Permissions:
    """The permissions of a user who runs all *commands* (each one of COMMANDS) on the servers of *topology*."""
    profile = profile_of(topology)
    has_imported_api = profile.has_hidden_accounts or profile.has_region_accounts
    managed = f"{naming.ACCOUNT_API_PREFIX}.*" if has_imported_api else API
    client = f"{naming.REGION_PREFIX}.*.{API}" if profile.has_hidden_accounts else API
    publish, subscribe = list[str](), [shared.ANSWERS]
    for command in commands:
        publish += [] if command in _NEVER_ASKS_WHO_IT_IS else [shared.WHO_AM_I]
        publish += [f"{managed}.{subject}" for subject in MANAGED[command]]
        publish += [f"{client}.{subject}" for subject in AS_CLIENT.get(command, ())]
        if command == "probe":
            publish += shared.canary_subjects(topology, _published_below(topology))
            publish += [shared.NAMES] if profile.has_physical_names else []
        if command in {"repair messages", "map --trace"}:
            publish += shared.list_published(topology, _published_below(topology))
        if command == "map --trace":
            publish.append(shared.ANSWERS)
        if command in {"backup take", "backup restore"}:
            publish.append(shared.SNAPSHOTS)
        if command == "export" and profile.tells_who_asks:
            subscribe.append(naming.ADVISORIES)
        if command == "repair messages" and profile.has_every_operation:
            publish += [f"{managed}.{subject}" for subject in _REPAIRS_CONTENTS]
            publish += [f"{naming.REPAIR_PREFIX}.>", f"{naming.REPAIR_ALIVE_PREFIX}.*"]
            subscribe.append(f"{naming.REPAIR_ALIVE_PREFIX}.*")
    return Permissions(publish=tuple(dict.fromkeys(publish)), subscribe=tuple(dict.fromkeys(subscribe)))


def _published_below(topology: Topology) -> str:
    profile = profile_of(topology)
    if profile.has_physical_names:
        return f"{naming.PHYSICAL_PREFIX}.*.*"
    return f"{naming.REGION_PREFIX}.*" if profile.has_hidden_accounts else naming.PUBLISH_PREFIX
