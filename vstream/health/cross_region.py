"""
Clients that use another region's streams, by what servers tell of each request to the JetStream API.

They tell it to whoever listens (server/jetstream_events.go): what a client asks when it begins to read, and no message.
"""

from __future__ import annotations

import re

from vstream.errors import VstreamError
from vstream.jetstream.answers import UNREADABLE, decode_object, require_text
from vstream.topology.model import Topology
from vstream.topology.naming import ADVISORIES
from vstream.topology.replication import list_physical_streams
from vstream.value_class import value_class

_NAME_LENGTH = 200
_REQUEST = re.compile(
    r"\$JS\.API\.(?:STREAM\.(?:INFO|PURGE|MSG\.GET|MSG\.DELETE)|CONSUMER\.(?:DURABLE\.CREATE|CREATE|INFO|DELETE|LIST|NAMES))"
    r"\.([^.]+)"
)
"""A request, and the stream that it names."""


@value_class
class CrossRegionUse:
    """A client that is connected in *place*, and a stream of *region* that it uses. Texts are empty where they are not known."""

    client: str
    user: str
    host: str
    place: str
    stream: str
    region: str

    def describe(self) -> str:
        """Who uses what, in words."""
        named = f"client `{self.client}`" if self.client else "a client without a name"
        details = ", ".join(filter(None, (self.user and f"user `{self.user}`", self.host)))
        return f"{named}{details and f' ({details})'} in {self.place} uses `{self.stream}` of {self.region}"


class AdvisoryReader:
    """Reads who asked for what in the advisories that servers of *topology* send."""

    def __init__(self, topology: Topology) -> None:
        self._clusters = {region.cluster: region.name for region in topology.regions}
        regions = set(self._clusters.values())  # streams of the stretch cluster belong to all
        self._streams = {part.name: part.place for part in list_physical_streams(topology) if part.place in regions}

    def read(self, payload: bytes, account: str | None) -> CrossRegionUse | None:
        """
        Who uses a stream of another region, by an advisory in *account*, which is None where all regions share one.

        None where nobody does, or it is not known. Whatever *payload* is, this raises nothing.
        """
        try:
            advisory = decode_object(payload, ADVISORIES)
            client, request = advisory["client"], _REQUEST.match(advisory["subject"])
            client_region = self._clusters.get(client["cluster"])
            name, user, host = (require_text(client.get(key, ""))[:_NAME_LENGTH] for key in ("name", "user", "host"))
        except (VstreamError, *UNREADABLE):
            return None
        # What comes from another account is asked by vstream, or by a stream that sources.
        is_client = name != "vstream" and client.get("kind") == "Client" and "svc" not in client
        if request is None or client_region is None or not is_client:
            return None
        stream = request[1] if account is None else f"{account}/{request[1]}"
        region = self._streams.get(stream, client_region)
        if region == client_region:
            return None
        return CrossRegionUse(client=name, user=user, host=host, place=client_region, stream=stream, region=region)
