"""One connection for all regions: requests to a domain's API go to that domain's own region."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vstream.errors import NotReachableError
from vstream.jetstream.connection import Connection, Reply

_DOMAIN = re.compile(r"\$JS\.([^.]+)\.API\.")


class DomainRoutingConnection(Connection):
    """Uses the connection *first*, except for requests to a domain: they use the *connections* entry of its region."""

    def __init__(self, first: Connection, connections: Mapping[str, Connection | NotReachableError]) -> None:
        super().__init__(first.client, first.region)
        self._first, self._connections = first, connections

    async def request(self, subject: str, payload: bytes = b"", **options: Any) -> Reply:
        """See Connection. Also raises NotReachableError if there is no connection to the region."""
        return await self._find(subject).request(subject, payload, **options)

    async def collect(self, subject: str, payload: bytes = b"", **options: Any) -> tuple[Reply, ...]:
        """See Connection. Also raises NotReachableError if there is no connection to the region."""
        return await self._find(subject).collect(subject, payload, **options)

    def _find(self, subject: str) -> Connection:
        """The connection to the region whose domain *subject* is of; the first where it is of none."""
        named = _DOMAIN.match(subject)
        if named is None:
            return self._first
        connection = self._connections.get(named[1])
        if isinstance(connection, Connection):
            return connection
        raise NotReachableError(f"region `{named[1]}` cannot be reached" if connection is None else connection.message)
