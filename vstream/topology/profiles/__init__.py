"""The routing profiles. Adding one means adding a member of `Routing`, and a module here that is called as it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from vstream.topology.model import Routing, Topology, VirtualStream
from vstream.topology.profiles.profile import Profile

_MODULES: Final = tuple(import_module(f"{__name__}.{routing.value}") for routing in Routing)
_CLASSES: Final = [member for module in _MODULES for member in vars(module).values() if isinstance(member, type)]

PROFILES: Final[Mapping[Routing, Profile]] = {
    member.routing: member() for member in _CLASSES if issubclass(member, Profile) and "routing" in vars(member)
}


_UNNAMED: Final = PROFILES[Routing.MAPPED]
"""The profile that the metadata of its streams do not name."""


def profile_of(subject: Topology | VirtualStream) -> Profile:
    """The profile of a topology, or of a virtual stream in one."""
    return PROFILES[subject.routing]


def profile_named(routing: str | None) -> Profile | None:
    """The profile that the metadata of a stream name; None for an unknown one. The reverse of `name_in_metadata`."""
    if not routing:
        return _UNNAMED
    return next((profile for profile in PROFILES.values() if profile.routing.value == routing), None)


def name_in_metadata(topology: Topology) -> str | None:
    """How the metadata of streams of *topology* name its profile; None for `mapped`, of which they say nothing."""
    return None if profile_of(topology) is _UNNAMED else topology.routing.value
