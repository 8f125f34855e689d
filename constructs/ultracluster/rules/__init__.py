"""What can be known to be wrong before a deploy, one small function a rule."""

from ultracluster.catalog import Catalog
from ultracluster.rules import (
    capacity,
    cluster,
    endpoint,
    lustre,
    network,
    overrides,
    queues,
    serving,
    text,
)
from ultracluster.rules.problem import Level, Problem, Rule
from ultracluster.settings import Settings

RULES: tuple[Rule, ...] = (
    text.names_fit,
    text.tags_are_allowed,
    text.nothing_is_left_unrendered,
    network.zones_are_in_the_region,
    network.second_zone_is_another,
    network.subnets_fit_into_the_vpc,
    network.addresses_suffice,
    network.imported_vpc_is_complete,
    lustre.kind_exists,
    lustre.capacity_is_a_step,
    lustre.throughput_belongs_to_the_type,
    lustre.scratch_has_no_key_and_no_backups,
    lustre.links_do_not_overlap,
    lustre.links_are_safe,
    lustre.place_is_near,
    lustre.kept_file_system_keeps_its_subnet,
    cluster.region_is_supported,
    cluster.version_can_create,
    cluster.system_is_supported,
    cluster.combination_is_not_known_bad,
    cluster.neuron_fits,
    cluster.head_node_fits,
    cluster.log_in_nodes_are_x86,
    cluster.shell_is_not_open_to_the_world,
    cluster.key_is_a_name,
    cluster.creation_ends_within_the_hour,
    cluster.no_way_out_needs_an_image,
    cluster.protected_data_is_not_destroyed,
    queues.types_are_known,
    queues.counts_and_names,
    queues.zones_exist,
    queues.types_are_offered,
    queues.efa_fits,
    queues.placement_group_fits,
    queues.alternatives_match,
    capacity.reservation_fits,
    capacity.capacity_block_is_complete,
    capacity.spot_price_needs_spot,
    capacity.idle_nodes_are_told,
    capacity.scaledown_is_short,
    capacity.fleet_is_told,
    overrides.overrides_fit,
    text.own_keys_are_sound,
    text.counts_are_numbers,
    endpoint.endpoint_is_graviton,
    endpoint.model_fits_into_memory,
    endpoint.processor_has_bf16,
    endpoint.limits_suffice,
    endpoint.traffic_fits,
    endpoint.roll_out_ends_in_time,
    endpoint.alarms_have_time,
    endpoint.fleet_is_doubled,
    endpoint.scaling_has_room,
    endpoint.vpc_has_two_zones,
    endpoint.capture_key_is_near,
    serving.serving_image,
    serving.image_is_patched,
    serving.approval_has_a_reader,
    serving.budget_has_a_reader,
)

__all__ = ["RULES", "Level", "Problem", "Rule", "findings"]


def findings(settings: Settings, catalog: Catalog) -> list[Problem]:
    """All that the rules find, of every level, each once."""
    return list(dict.fromkeys(found for rule in RULES for found in rule(settings, catalog)))
