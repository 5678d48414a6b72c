"""The least permissions of each command: the subjects that its user publishes and subscribes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vstream.topology import naming
from vstream.topology.naming import API
from vstream.topology.profiles import profile_of
from vstream.topology.profiles.shared import ANSWERS, LOOKS, READS_ALL, WHO_AM_I, all_published, canaries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.topology.model import Topology

_PLAN = ("STREAM.LIST", "CONSUMER.LIST.*")
_STATUS = ("STREAM.INFO.*", "CONSUMER.INFO.>", "DIRECT.GET.>")
_CHANGE = ("STREAM.CREATE.*", "STREAM.UPDATE.*", "STREAM.DELETE.*")
_RESYNC = ("STREAM.INFO.*", "STREAM.LEADER.STEPDOWN.*")
MANAGED: Final = {
    "plan": _PLAN,
    "apply": (
        *_PLAN,
        *_CHANGE,
        *_RESYNC,
        *("STREAM.NAMES", "STREAM.MSG.GET.*", "DIRECT.GET.>"),
        *("CONSUMER.CREATE.>", "CONSUMER.DELETE.>"),
    ),
    "plan --drift": (*_PLAN, *_STATUS),
    "status": _STATUS,
    "doctor": _STATUS,
    "probe": ("STREAM.INFO.*", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*"),
    "audit": (*LOOKS, *READS_ALL),
    "resync": _RESYNC,
    "repair": (*_STATUS, *_RESYNC),
}
"""By command, what it asks of the accounts with streams: `export` asks what `status` does."""
_REPAIRS_CONTENTS: Final = (
    *_CHANGE,
    *("STREAM.LIST", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*", "STREAM.PURGE.*"),
    *("CONSUMER.CREATE.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>"),
)
"""What `repair` asks besides where it also repairs what streams hold."""
_AS_CLIENT: Final = {
    "plan --drift": ("INFO",),
    "status": ("INFO",),
    "doctor": ("INFO",),
    "repair": ("INFO",),
    "probe": (
        *("STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.>"),
        *("CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.MSG.NEXT.>", "CONSUMER.DELETE.>"),
    ),
}
"""What it asks as clients do."""
_ASKS_WHO_IT_IS: Final = frozenset({"plan", "apply", "plan --drift", "status", "doctor", "probe", "audit", "repair"})
COMMANDS: Final = tuple(MANAGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The subjects that a user may publish and subscribe to, as servers see them: after mapping."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions_for(topology: Topology, commands: Iterable[str]) -> Permissions:
    """What a user needs who runs all *commands*, each one of COMMANDS, on the servers of *topology*."""
    profile = profile_of(topology)
    has_imported_api = profile.has_hidden_accounts or profile.has_region_accounts
    managed = f"{naming.ACCOUNT_API_PREFIX}.*" if has_imported_api else API
    client = f"{naming.REGION_PREFIX}.*.{API}" if profile.has_hidden_accounts else API
    publish, subscribe = list[str](), [ANSWERS]
    for command in commands:
        publish += [WHO_AM_I] if command in _ASKS_WHO_IT_IS else []
        publish += [f"{managed}.{subject}" for subject in MANAGED[command]]
        publish += [f"{client}.{subject}" for subject in _AS_CLIENT.get(command, ())]
        if command == "probe":
            publish += canaries(topology, _published_below(topology))
        if command == "repair":
            publish += all_published(topology, _published_below(topology))
        if command == "repair" and profile.has_physical_names:
            publish += [f"{managed}.{subject}" for subject in _REPAIRS_CONTENTS]
            publish += [f"{naming.REPAIR_PREFIX}.>", f"{naming.REPAIR_ALIVE_PREFIX}.*"]
            subscribe.append(f"{naming.REPAIR_ALIVE_PREFIX}.*")
    return Permissions(publish=tuple(dict.fromkeys(publish)), subscribe=tuple(dict.fromkeys(subscribe)))


def _published_below(topology: Topology) -> str:
    profile = profile_of(topology)
    if profile.has_physical_names:
        return f"{naming.PHYSICAL_PREFIX}.*.*"
    return f"{naming.REGION_PREFIX}.*" if profile.has_hidden_accounts else naming.PUBLISH_PREFIX
