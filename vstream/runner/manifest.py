"""The parts of a capture that belong to the whole run: its input files, the manifest, and the logs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from vstream import __version__
from vstream.capture.records import CapturedServer, CapturedStream, GivenUpStream, Manifest, Sample
from vstream.capture.store import FORMAT, Capture
from vstream.errors import VstreamError
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory
from vstream.lab.status import read_lab_status
from vstream.plan.model import RegionLoss
from vstream.runner.environment import ChangedRegion
from vstream.scenario.model import Scenario

SAMPLE = TypeAdapter(Sample)


def begin_capture(directory: Path, scenario: Scenario) -> Capture:
    """Start a new capture of *scenario*. Raises VstreamError if there is one already, or if it cannot be written."""
    if (directory / "manifest.json").exists():
        raise VstreamError(
            f"`{directory}` holds a capture already", hint="`--output` with another directory keeps both"
        )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # it will hold whole streams
        (directory / "scenario.yaml").write_text(scenario.text, encoding="utf-8")
        (directory / "topology.yaml").write_text(scenario.topology_text, encoding="utf-8")
    except OSError as error:
        raise VstreamError(
            f"the capture cannot be written to `{directory}`: {error.strerror}",
            hint="`--output` names another directory",
        ) from error
    return Capture(directory)


class ManifestWriter:
    """Keeps the manifest of *capture* as the run proceeds; `write` alone writes it."""

    def __init__(self, capture: Capture, scenario: Scenario, *, wall: int, started: datetime) -> None:
        self._capture = capture
        self._manifest = Manifest(
            format=FORMAT,
            vstream=__version__,
            scenario=scenario.name,
            seed=scenario.seed,
            started=started.isoformat(timespec="milliseconds"),
            wall=wall,
            backend=scenario.lab.links,
            regions=tuple(region.name for region in scenario.topology.regions),
            models={stream.name: stream.consistency.value for stream in scenario.topology.streams},
            machine={
                "cpus": os.cpu_count() or 0,
                "load": round(os.getloadavg()[0], 2),
                "platform": platform.platform(),
                "python": platform.python_version(),
            },
        )

    def write(self) -> None:
        """Replace the manifest on disk."""
        self._capture.write_manifest(self._manifest)

    def record_load_start(self, at: int) -> None:
        """Record that publishers start."""
        self._manifest = replace(self._manifest, load=(at, at))

    def record_load_end(self, at: int) -> None:
        """Record that publishers have stopped."""
        began = at if self._manifest.load is None else self._manifest.load[0]
        self._manifest = replace(self._manifest, load=(began, at))

    def record_region_change(self, changed: ChangedRegion, at: int) -> None:
        """Record which regions are gone, and what a change that began *at* said to be lost."""
        absent = tuple(sorted(region.name for region in changed.environment.topology.lost))
        given_up = tuple(describe_given_up(loss, at) for loss in changed.losses)
        self._manifest = replace(self._manifest, absent=absent, given_up=(*self._manifest.given_up, *given_up))

    def record_streams(self, streams: Sequence[CapturedStream]) -> None:
        """Record how much of each stream could be read."""
        self._manifest = replace(self._manifest, streams=tuple(streams))

    def mark_stopped(self, why: str) -> None:
        """Record that the run was stopped before its end."""
        self._manifest = replace(self._manifest, stopped_by=why, is_complete=False)

    def mark_complete(self) -> None:
        """Record that the run has finished; the capture is complete if every stream was read."""
        unread = [stream.name for stream in self._manifest.streams if stream.messages is None]
        why = f"not read: {', '.join(unread)}" if unread else None
        self._manifest = replace(self._manifest, is_complete=not unread, stopped_by=why)

    def record_line_counts(self) -> None:
        """Count the lines of all files at the end: a file that holds less later is known to be damaged."""
        self._manifest = replace(self._manifest, lines=self._capture.count_lines())

    def keep_servers(self, lab_name: str) -> None:
        """Copy the lab's logs, and record its servers and their panics. A lab that never started has none."""
        try:
            status = read_lab_status(lab_name)
        except VstreamError:
            return
        self._capture.logs.mkdir(parents=True, exist_ok=True)
        servers = []
        for server in status.servers:
            panics = NatsServer(lab_directory(lab_name), server.name).copy_logs(self._capture.logs)
            servers.append(
                CapturedServer(
                    name=server.name,
                    region=server.region,
                    cluster=server.address.cluster_name,
                    version=server.version,
                    panics=panics,
                )
            )
        self._manifest = replace(self._manifest, servers=tuple(servers))


def describe_given_up(loss: RegionLoss, at: int) -> GivenUpStream:
    """What was said of one stream that is given up: of an origin, the new one has what the furthest copy has."""
    positions = {reader: seq or 0 for reader, seq in loss.readers.items()}
    if loss.is_origin:
        positions = dict.fromkeys((loss.stream, *positions), max(positions.values(), default=0))
    return GivenUpStream(stream=loss.stream, at=at, readers=positions)
