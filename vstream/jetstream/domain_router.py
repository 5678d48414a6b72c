"""One connection for all regions: requests to a domain's API go to that domain's own region."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vstream.errors import NotReachableError
from vstream.jetstream.connection import REQUEST_TIMEOUT, Connection, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOMAIN = re.compile(r"\$JS\.([^.]+)\.API\.")


class DomainRoutingConnection(Connection):
    """Uses the connection *first*, except for requests to a domain: they use the *connections* entry of its region."""

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
        """See Connection. Also raises NotReachableError if there is no connection to the region."""
        named = _DOMAIN.match(subject)
        if named is None:
            return await super().request(subject, payload, headers=headers, timeout=timeout)
        connection = self._connections.get(named[1])
        if isinstance(connection, Connection):
            return await connection.request(subject, payload, headers=headers, timeout=timeout)
        raise NotReachableError(f"region `{named[1]}` cannot be reached" if connection is None else connection.message)
