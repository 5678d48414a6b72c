"""The routing profiles. Adding one means adding a module here, a member of `Routing`, and an entry in `PROFILES`."""

from __future__ import annotations

from collections.abc import Mapping

from vstream.topology.model import Routing, Topology, VirtualStream
from vstream.topology.profiles.accounts import AccountsProfile
from vstream.topology.profiles.domains import DomainsProfile
from vstream.topology.profiles.mapped import MappedProfile
from vstream.topology.profiles.profile import Profile
from vstream.topology.profiles.regional import RegionalProfile

PROFILES: Mapping[Routing, Profile] = {
    profile.routing: profile for profile in (MappedProfile(), AccountsProfile(), DomainsProfile(), RegionalProfile())
}


def profile_of(subject: Topology | VirtualStream) -> Profile:
    """The profile of a topology, or of a virtual stream in one."""
    return PROFILES[subject.routing]


def profile_named(routing: str | None) -> Profile | None:
    """The profile that the metadata of a stream name, `mapped` where they say nothing; None for an unknown one."""
    routing = routing or Routing.MAPPED.value
    return next((profile for profile in PROFILES.values() if profile.routing.value == routing), None)
