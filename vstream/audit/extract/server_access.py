"""Give executors the access that this machine has: Spark distributes files and secrets, never in its plans."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vstream.audit.connector.login import context_file, find_file
from vstream.audit.connector.stream_snapshots import is_any_answered
from vstream.audit.connector.values import Access, StreamRef
from vstream.credentials import is_plaintext_allowed, read_secret_variable
from vstream.jetstream.endpoints import list_endpoint_problems
from vstream.topology.model import Endpoint

_SAME = ("context", "creds", "nkey", "user", "password_env", "token_env", "tls_ca", "tls_cert", "tls_key")
"""Fields that an access has from its endpoint."""
_FILES = ("creds", "nkey", "password_file", "token_file", "tls_ca", "tls_cert", "tls_key")


def find_access(
    stream_refs: Sequence[StreamRef], endpoints: Mapping[str, Endpoint], scratch: Path
) -> dict[str, Access]:
    """
    The access from this machine for each place of *stream_refs*: the regions of *endpoints*, and the stretch cluster.

    The stretch cluster is reached through the first region from which its streams answer, as a region may be down.
    Raises VstreamError for an invalid endpoint.
    """
    for region, endpoint in endpoints.items():
        for problem in list_endpoint_problems(endpoint, region):
            raise problem
    result = {region: make_local_access(endpoint, region, scratch) for region, endpoint in endpoints.items()}
    routes = list(result.values())
    for place in sorted({item.region for item in stream_refs} - result.keys()):
        streams = [item for item in stream_refs if item.region == place]
        result[place] = next((item for item in routes if is_any_answered(streams, item)), routes[0])
    return result


def make_local_access(endpoint: Endpoint, region: str, scratch: Path) -> Access:
    """
    The access to *region* from this machine.

    A secret that is part of *endpoint* is written to a file in *scratch* that only this user
    can read.
    """
    return Access(
        **{name: getattr(endpoint, name) for name in _SAME},
        servers=endpoint.urls,
        password_file=_write_secret(endpoint.password, f"{region}-password", scratch),
        token_file=_write_secret(endpoint.token, f"{region}-token", scratch),
        inbox=None if endpoint.context else endpoint.inbox,
        allow_plaintext=is_plaintext_allowed(),
    )


def ship_to_executors(spark: Any, by_region: Mapping[str, Access], scratch: Path) -> dict[str, Access]:
    """
    The same access for the executors of *spark*: sends them every file that *by_region* names.

    Raises VstreamError for a missing file or variable.
    """
    return {region: _ship_access(spark, region, access, scratch) for region, access in by_region.items()}


def _ship_access(spark: Any, region: str, access: Access, scratch: Path) -> Access:
    changes: dict[str, Any] = {}
    for name in _FILES:
        file = getattr(access, name)
        if file:
            changes[name] = _send_file(spark, find_file(file), f"{region}-{name}", scratch)
    if access.context:
        changes["context"] = _send_file(spark, context_file(access.context), f"{region}-context", scratch)
    for name in ("password", "token"):
        variable = getattr(access, f"{name}_env")
        if variable:
            stored = _write_secret(read_secret_variable(variable, f"region `{region}`"), f"{region}-{name}", scratch)
            assert stored is not None
            changes |= {
                f"{name}_env": None,
                f"{name}_file": _send_file(spark, Path(stored), f"{region}-{name}", scratch),
            }
    return replace(access, **changes)


def _send_file(spark: Any, file: Path, name: str, scratch: Path) -> str:
    """Send a copy of *file* to the executors, and return its name there, which is unique across regions."""
    copy = scratch / f"vstream-{name}"
    if file != copy:
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
    if hasattr(spark, "_jvm"):
        spark.sparkContext.addFile(str(copy))
    else:
        spark.addArtifacts(str(copy), file=True)
    return copy.name


def _write_secret(secret: str | None, name: str, scratch: Path) -> str | None:
    if secret is None:
        return None
    file = scratch / f"vstream-{name}"
    file.touch(mode=0o600)
    file.write_text(secret, encoding="utf-8")
    return str(file)
