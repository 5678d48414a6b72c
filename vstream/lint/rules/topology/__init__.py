"""VS1xx: checks of a topology as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.topology.buckets import bucket_compares_nothing, bucket_diverges, bucket_out_of_reach
from vstream.lint.rules.topology.consumers import consumer_cannot, consumer_nowhere, consumer_takes_nothing
from vstream.lint.rules.topology.context import TopologySubject
from vstream.lint.rules.topology.limits import (
    bad_duplicate_window,
    field_belongs_to_vstream,
    needs_newer_server,
    outage_not_stated,
    read_stream_refuses,
    rollup_without_purge,
    too_many_replicas,
    too_much_text,
)
from vstream.lint.rules.topology.lost import drained_region_unfit, lost_region_unfit
from vstream.lint.rules.topology.models import (
    counter_cannot,
    counter_forgets,
    home_missing,
    key_value_diverges,
    model_cannot,
    model_needs_stretch,
    order_not_named,
)
from vstream.lint.rules.topology.moves import move_unfit, takeover_cannot
from vstream.lint.rules.topology.references import (
    name_collision,
    reserved_name,
    setting_without_effect,
    unknown_preset,
    unknown_region,
)
from vstream.lint.rules.topology.routing import region_users_shared, root_unfit, routing_unfit
from vstream.lint.rules.topology.security import bad_connection, security_unfit
from vstream.lint.rules.topology.servers import (
    bad_link,
    mixed_addresses,
    placement_tags_not_met,
    port_clash,
    stretch_members,
    stretch_single_copy,
    tags_do_not_match_servers,
    too_many_servers,
)
from vstream.lint.rules.topology.subjects import (
    bad_canary,
    bad_subject,
    core_subscribers_unfit,
    naming_needs_token,
    overlapping_subjects,
)
from vstream.lint.rules.topology.survive import survival_not_met
from vstream.lint.rules.topology.transport import (
    plaintext_credentials,
    plaintext_servers,
    transport_unfit,
    users_missing,
)

if TYPE_CHECKING:
    from vstream.lint.registry import Rule

__all__ = ["RULES", "TopologySubject"]

RULES: tuple[Rule[TopologySubject], ...] = (
    unknown_region,
    bad_subject,
    overlapping_subjects,
    too_many_replicas,
    model_cannot,
    bad_canary,
    outage_not_stated,
    reserved_name,
    name_collision,
    tags_do_not_match_servers,
    field_belongs_to_vstream,
    needs_newer_server,
    bad_duplicate_window,
    unknown_preset,
    bad_connection,
    read_stream_refuses,
    naming_needs_token,
    port_clash,
    mixed_addresses,
    too_many_servers,
    placement_tags_not_met,
    setting_without_effect,
    too_much_text,
    key_value_diverges,
    rollup_without_purge,
    stretch_members,
    model_needs_stretch,
    home_missing,
    stretch_single_copy,
    bad_link,
    routing_unfit,
    root_unfit,
    consumer_cannot,
    consumer_takes_nothing,
    consumer_nowhere,
    takeover_cannot,
    bucket_diverges,
    bucket_compares_nothing,
    bucket_out_of_reach,
    counter_cannot,
    counter_forgets,
    core_subscribers_unfit,
    order_not_named,
    security_unfit,
    transport_unfit,
    region_users_shared,
    move_unfit,
    plaintext_servers,
    users_missing,
    plaintext_credentials,
    survival_not_met,
    lost_region_unfit,
    drained_region_unfit,
)
"""In the order of their codes."""
