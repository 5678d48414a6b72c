"""VS202 to VS299: stream and consumer configurations, alone and together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.streams.buckets import broken_bucket
from vstream.lint.rules.streams.consumers import consumer_does_not_fit, refused_consumer, unknown_stream
from vstream.lint.rules.streams.dedupe import (
    flags_differ,
    refused_window,
    smaller_messages,
    window_drops_messages,
    window_not_stated,
    windows_differ,
)
from vstream.lint.rules.streams.fields import (
    invalid_name,
    needs_newer_server,
    unknown_consumer_field,
    unknown_field,
    wrong_consumer_value,
    wrong_stream_value,
)
from vstream.lint.rules.streams.graph import (
    missing_source,
    republish_cycle,
    sourcing_loop,
    uncovered_region,
    unknown_source,
)
from vstream.lint.rules.streams.placement import (
    even_replicas,
    overlapping_streams,
    placed_elsewhere,
    placement_missing,
    single_replica,
    too_many_replicas,
)
from vstream.lint.rules.streams.plausible import implausible_value, unmeant_subjects
from vstream.lint.rules.streams.refused import refused_stream
from vstream.lint.rules.streams.retention import (
    asynchronous,
    direct_get_off,
    evicts_sooner,
    forgets_position,
    read_stream_refuses,
    retention_not_limits,
    shorter_than_back_off,
    shorter_than_stated,
)
from vstream.lint.rules.streams.sourcing import (
    duplicate_source,
    filter_and_transforms,
    filter_with_transform,
    mirror_conflict,
    schedules_with_sources,
)

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

RULES: tuple[Rule[Workspace], ...] = (
    invalid_name,
    unknown_field,
    needs_newer_server,
    filter_with_transform,
    filter_and_transforms,
    duplicate_source,
    mirror_conflict,
    schedules_with_sources,
    republish_cycle,
    unknown_source,
    sourcing_loop,
    missing_source,
    uncovered_region,
    window_not_stated,
    refused_window,
    window_drops_messages,
    windows_differ,
    flags_differ,
    smaller_messages,
    placement_missing,
    placed_elsewhere,
    too_many_replicas,
    even_replicas,
    single_replica,
    shorter_than_back_off,
    shorter_than_stated,
    evicts_sooner,
    forgets_position,
    retention_not_limits,
    direct_get_off,
    read_stream_refuses,
    asynchronous,
    wrong_stream_value,
    overlapping_streams,
    unknown_consumer_field,
    wrong_consumer_value,
    refused_consumer,
    refused_stream,
    implausible_value,
    consumer_does_not_fit,
    unknown_stream,
    broken_bucket,
    unmeant_subjects,
)
"""In the order of their codes."""
