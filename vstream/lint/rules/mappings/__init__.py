"""VS302 to VS399: how servers interpret subject mappings, and how that affects clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.mappings.clusters import (
    region_left_out,
    servers_map_differently,
    stream_not_mapped,
    unknown_cluster,
)
from vstream.lint.rules.mappings.coverage import (
    consumer_creation_not_mapped,
    creation_by_virtual_name,
    direct_get_not_mapped,
    origin_mapped,
    request_not_mapped,
)
from vstream.lint.rules.mappings.destinations import (
    bad_destination,
    duplicate_destination,
    duplicate_source,
    function_too_new,
    invalid_source,
    literal_function,
    missing_destination,
    overlapping_sources,
    unreadable_rule,
)
from vstream.lint.rules.mappings.double_mapping import mapped_twice
from vstream.lint.rules.mappings.permissions import (
    mappings_block_missing,
    mappings_of_nobody,
    permission_misses_mapped_subject,
    second_mappings_block,
)
from vstream.lint.rules.mappings.requests import (
    catches_other_streams,
    dead_reply_rule,
    regions_diverge,
    request_becomes_another,
    request_not_in_every_version,
    stream_management_mapped,
    system_subjects_mapped,
    unknown_api_subject,
)
from vstream.lint.rules.mappings.weights import (
    many_rules,
    rest_is_dropped,
    weight_out_of_range,
    weights_below_100,
    weights_over_100,
)

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

__all__ = ["RULES"]

RULES: tuple[Rule[Workspace], ...] = (
    overlapping_sources,
    duplicate_source,
    invalid_source,
    unreadable_rule,
    missing_destination,
    bad_destination,
    literal_function,
    function_too_new,
    duplicate_destination,
    weight_out_of_range,
    weights_over_100,
    weights_below_100,
    rest_is_dropped,
    unknown_cluster,
    region_left_out,
    stream_not_mapped,
    origin_mapped,
    servers_map_differently,
    unknown_api_subject,
    request_becomes_another,
    request_not_in_every_version,
    stream_management_mapped,
    regions_diverge,
    dead_reply_rule,
    catches_other_streams,
    system_subjects_mapped,
    direct_get_not_mapped,
    consumer_creation_not_mapped,
    request_not_mapped,
    creation_by_virtual_name,
    mapped_twice,
    permission_misses_mapped_subject,
    mappings_block_missing,
    mappings_of_nobody,
    second_mappings_block,
    many_rules,
)
"""Every rule about mappings, in the order of their codes."""
