"""One connection for all regions: what names a domain's API goes to that domain's own region, as nobody else answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vstream.errors import NotReachableError
from vstream.jetstream.connection import REQUEST_TIMEOUT, Connection, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOMAIN = re.compile(r"\$JS\.([^.]+)\.API\.")


class DomainRoutingConnection(Connection):
    """The connection *first*, but for requests to a domain: they go to its region's own of *connections*, by region."""

    def __init__(self, first: Connection, connections: Mapping[str, Connection | NotReachableError]) -> None:
        super().__init__(first.client, first.region)
        self._connections = connections

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Reply:
        """As of a Connection. Raises NotReachableError also where there is no connection to the region."""
        named = _DOMAIN.match(subject)
        if named is None:
            return await super().request(subject, payload, headers=headers, timeout=timeout)
        connection = self._connections.get(named[1])
        if isinstance(connection, Connection):
            return await connection.request(subject, payload, headers=headers, timeout=timeout)
        raise NotReachableError(f"region `{named[1]}` cannot be reached" if connection is None else connection.message)
