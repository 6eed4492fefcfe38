"""Every key of the settings has an effect that a test shows, and is refused where it would have none."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from bridge.settings import Settings, SettingsInvalid, load
from bridge.settings.describe import sections

TESTS: Final = Path(__file__).parents[2]

#: By table and key, a test of what the key does; several keys of one line have one test.
SHOWN: Final[dict[str, dict[str, str]]] = {
    "node": {
        "name": "acceptance/test_operations.py::test_the_status_names_the_node_and_its_bridges",
        "data-directory": "acceptance/test_drain.py::test_a_data_directory_that_cannot_be_used_ends_with_1",
        "workers": "integration/workers/test_workers.py::test_workers_relay_are_seen_as_one_bridge_and_drain",
        "shutdown-timeout": "acceptance/test_drain.py::test_shutdown_timeout_bounds_the_drain",
        "log-level": "acceptance/test_logs.py::test_the_level_decides_what_is_written",
        "log-format": "acceptance/test_logs.py::test_console_logs_are_for_people",
        "watch-settings": "acceptance/test_reload.py::test_a_watched_file_is_reloaded_when_it_changes",
    },
    "acceptor": {
        "url": "acceptance/test_logs.py::test_listening_says_where",
        "certificate key": "acceptance/test_http.py::test_tls_protects_the_acceptor",
        "client-ca": "acceptance/test_http.py::test_mutual_tls_gives_the_certificates_user_its_rights",
        "insecure": "acceptance/test_commands.py::"
        "test_an_address_that_cannot_be_listened_on_is_named_with_its_key",
        "tokens": "acceptance/test_http.py::test_tokens_have_every_right_and_users_their_own",
        "allowed-origins": "acceptance/test_http.py::test_a_browser_may_call_from_allowed_origins_only",
        "min-large-message-size": "integration/journal/test_large_posts.py::"
        "test_from_min_large_message_size_on_a_body_is_stored_in_chunks",
        "max-message-size": "acceptance/test_http.py::test_a_message_above_max_message_size_is_too_large",
        "max-headers-size": "acceptance/test_http.py::test_headers_above_max_headers_size_are_too_large",
        "max-duplicate-id-size": "acceptance/test_http.py::test_an_id_above_max_duplicate_id_size_is_refused",
        "max-requests": "acceptance/test_http.py::test_more_than_max_requests_are_too_busy",
        "max-held-requests": "acceptance/test_http.py::test_no_more_than_max_held_requests_are_held",
        "max-held-size": "acceptance/test_http.py::test_a_full_address_holds_up_no_other_and_no_reader",
        "max-transit-size": "acceptance/test_http.py::test_bodies_on_their_way_have_one_limit",
        "max-connections": "acceptance/test_http.py::test_more_than_max_connections_are_too_busy",
        "call-timeout": "acceptance/test_http.py::test_a_post_that_block_holds_is_refused_after_call_timeout",
        "max-link-size": "integration/link/test_link.py::"
        "test_all_links_together_hold_no_more_than_max_link_size",
        "compression": "acceptance/test_compression.py::test_a_node_may_have_compression_off_at_either_end",
        "max-addresses": "integration/journal/test_limits.py::test_no_more_than_max_addresses_are_made",
        "max-queues": "integration/journal/test_limits.py::test_no_more_than_max_queues_are_made",
    },
    "acceptor.users.*": {
        "name": "acceptance/test_link_rights.py::"
        "test_positions_belong_to_the_user_and_the_node_that_wrote_them",
        "token send receive": "acceptance/test_http.py::test_tokens_have_every_right_and_users_their_own",
        "certificate-name": "acceptance/test_http.py::test_mutual_tls_gives_the_certificates_user_its_rights",
        "delete-queues": "acceptance/test_full_address.py::test_deleting_a_queue_is_a_right_of_its_own",
        "link": "acceptance/test_link.py::test_a_user_with_the_link_right_relays",
    },
    "operations": {
        "url": "acceptance/test_logs.py::test_port_0_takes_a_free_one_and_the_log_names_it",
        "tokens": "acceptance/test_operations.py::test_management_needs_the_token_and_probes_do_not",
        "partition-metrics": "unit/node/test_metering.py::test_partitions_are_metrics_where_that_is_set",
    },
    "duplicate-detection": {
        "id-cache-size": "acceptance/test_operations.py::test_a_full_id_cache_counts_what_it_forgets",
        "persist-id-cache": "acceptance/test_operations.py::test_ids_that_are_not_persisted_are_forgotten",
    },
    "delivery-log": {
        "enabled": "acceptance/test_delivery_log.py::test_a_node_without_a_delivery_log_writes_none",
        "directory": "acceptance/test_delivery_log.py::test_the_delivery_log_may_be_elsewhere",
        "roll-interval roll-size": "acceptance/test_delivery_log.py::"
        "test_a_file_is_rolled_by_its_age_and_by_its_size",
        "retention-time": "unit/delivery_log/test_lines_and_segments.py::test_files_are_deleted_by_age",
        "retention-size": "unit/delivery_log/test_lines_and_segments.py::"
        "test_files_are_deleted_by_size_from_the_oldest_on_and_the_open_one_never",
        "kafka-connector kafka-topic": "kafka/nodes/test_delivery_lines.py::"
        "test_a_copy_goes_to_a_topic_which_holds_up_nothing_while_it_is_not_there",
    },
    "address-settings.*": {
        "id-cache-size": "integration/journal/test_duplicates.py::"
        "test_a_size_per_address_goes_before_the_global_one",
        "max-size-bytes": "acceptance/test_http.py::test_a_full_address_with_policy_fail_answers_at_once",
        "address-full-policy": "acceptance/test_http.py::"
        "test_a_full_address_with_policy_block_holds_the_post_until_there_is_room",
        "retain-time": "integration/journal/test_retention.py::"
        "test_passed_messages_stay_until_their_time_has_come",
        "auto-create-addresses": "acceptance/test_http.py::"
        "test_an_address_that_is_not_made_on_demand_is_not_found",
        "auto-create-queues auto-delete-queues auto-delete-addresses": "acceptance/test_unused.py::"
        "test_a_readers_queue_comes_with_it_and_goes_with_its_address_through_kills",
        "auto-delete-queues-delay": "integration/journal/test_unused.py::"
        "test_a_reader_that_comes_back_restarts_the_delay_and_one_that_waits_keeps_the_queue",
        "auto-delete-queues-message-count": "integration/journal/test_unused.py::"
        "test_so_many_messages_may_go_with_a_queue",
        "auto-delete-queues-skip-usage-check auto-delete-addresses-skip-usage-check": ""
        "integration/journal/test_unused.py::test_what_was_never_used_stays_unless_that_is_not_asked",
        "auto-delete-created-queues": "integration/journal/test_unused.py::"
        "test_a_queue_that_was_made_by_hand_stays_unless_created_ones_go_too",
        "auto-delete-addresses-delay": "integration/journal/test_unused.py::"
        "test_an_anycast_address_goes_with_its_queue_after_both_delays",
        "redistribution-delay": "cluster/test_redistribution.py::"
        "test_c30_what_waits_without_a_reader_goes_to_a_node_that_has_one",
    },
    "addresses.*": {
        "queues": "acceptance/test_http.py::test_every_queue_of_an_address_gets_every_message",
        "routing-type": "integration/journal/test_configuring.py::"
        "test_a_routing_type_that_differs_changes_nothing_at_all",
    },
    "connectors.*": {
        "url": "acceptance/test_link.py::test_everything_of_a_message_travels",
        "token": "acceptance/test_link.py::test_a_link_needs_a_token_with_that_right",
        "ca server-name": "acceptance/test_link.py::test_a_link_over_tls_checks_the_authority_and_the_name",
        "certificate key": "acceptance/test_link.py::test_a_link_over_mutual_tls_is_known_by_its_certificate",
        "proxy": "acceptance/test_proxies.py::test_a_link_goes_through_tinyproxy_which_log_and_status_name",
        "compression": "acceptance/test_compression.py::test_a_node_may_have_compression_off_at_either_end",
        "identity": "acceptance/kafka/test_trouble.py::"
        "test_the_identity_of_a_connector_names_streams_and_stores",
    },
    "connectors.*.kafka": {
        "security-protocol": "kafka/client/test_security.py::test_a_message_passes",
        "ssl-cafile ssl-check-hostname": "unit/kafka/client/test_options.py::"
        "test_own_authorities_are_trusted_alone_and_host_names_may_pass",
        "ssl-certfile ssl-keyfile ssl-password": "unit/kafka/client/test_options.py::"
        "test_a_locked_key_is_opened_with_its_password",
        "sasl-mechanism sasl-plain-username sasl-plain-password": "kafka/client/test_security.py::"
        "test_a_wrong_password_is_for_good_and_says_so",
        "sasl-oauth-token-file": "kafka/client/test_security.py::"
        "test_a_token_that_is_refused_is_read_again_at_the_next_attempt",
    },
    "bridges.*": {
        "name": "acceptance/test_operations.py::test_the_status_names_the_node_and_its_bridges",
        "previous-name": "acceptance/test_decisions.py::"
        "test_a_renamed_bridge_goes_on_and_its_old_name_is_refused",
        "source-connector": "acceptance/kafka/test_nodes.py::test_everything_of_a_record_crosses_into_a_node",
        "queue-name": "acceptance/test_link.py::test_lists_patterns_and_exclusions_choose_addresses",
        "forwarding-address": "acceptance/kafka/test_topics.py::"
        "test_a_regex_with_an_exclude_and_a_forwarding_address",
        "static-connectors": "acceptance/test_link.py::"
        "test_one_address_goes_to_two_hubs_each_at_its_own_pace",
        "use-duplicate-detection": "acceptance/test_link.py::"
        "test_without_duplicate_detection_nothing_is_stamped",
        "check-producer-ids": "acceptance/test_link.py::test_producers_ids_are_checked_at_the_target",
        "filter": "acceptance/test_bridge_filters.py::"
        "test_large_messages_cross_byte_for_byte_where_the_filter_takes_them",
        "transformer transformer-properties": "acceptance/test_transformers.py::"
        "test_all_arrive_with_another_body_key_and_headers",
        "routing-type": "acceptance/test_shared_queues.py::"
        "test_an_address_made_at_the_target_has_the_bridges_routing_type",
        "concurrency": "acceptance/test_transformers.py::"
        "test_calls_side_by_side_keep_the_order_of_keys_and_messages_through_kills",
        "priority": "unit/relay/test_shared_lines.py::"
        "test_bridge_with_a_lower_priority_sends_one_small_batch_at_a_time_meanwhile",
        "retry-interval max-retry-interval": "unit/relay/test_relay.py::"
        "test_a_first_start_tries_at_once_and_then_waits_longer_each_time_up_to_the_cap",
        "retry-interval-multiplier": "unit/relay/test_backoff.py::test_each_wait_is_multiplied_up_to_the_cap",
        "initial-connect-attempts": "unit/relay/test_relay.py::"
        "test_n_attempts_are_n_plus_one_tries_and_then_it_has_failed",
        "reconnect-attempts": "acceptance/test_operations.py::test_reconnect_attempts_end_in_failed",
        "reconnect-attempts-same-node": "unit/relay/test_failover.py::"
        "test_after_a_loss_the_same_connector_is_tried_so_often_before_the_others",
        "failover": "acceptance/test_failover.py::test_two_hubs",
        "fail-back": "unit/relay/test_failover.py::test_fail_back_returns_by_itself_once_the_first_answers",
        "confirmation-window-size": "unit/relay/test_window.py::"
        "test_never_above_the_limit_except_for_a_single_batch",
        "producer-window-size": "unit/journal/test_batching.py::"
        "test_a_batch_ends_where_the_next_block_does_not_fit",
        "min-large-message-size": "unit/journal/test_batching.py::"
        "test_a_large_message_travels_alone_wherever_it_stands",
        "check-period": "integration/link/test_link.py::"
        "test_an_idle_link_lives_by_its_pings_and_learns_the_clock_offset",
        "connection-ttl": "integration/link/test_link.py::"
        "test_a_link_without_answers_is_dead_after_the_ttl_and_can_be_opened_again",
        "call-timeout": "acceptance/test_http.py::test_a_post_that_block_holds_is_refused_after_call_timeout",
        "max-rate": "acceptance/test_hours.py::"
        "test_a_bridge_sends_no_more_than_its_rate_and_a_reload_takes_the_limit_away",
        "schedule": "acceptance/test_hours.py::"
        "test_outside_its_hours_a_bridge_waits_without_trouble_and_a_reload_lets_it_send",
        "pending-ack-timeout": "unit/relay/test_relay.py::"
        "test_stop_and_pause_give_up_receipts_that_never_come",
        "max-delivery-attempts": "acceptance/test_transformers.py::"
        "test_one_that_always_raises_becomes_a_dead_letter_and_the_rest_flows",
        "dead-letter-address": "acceptance/test_link.py::"
        "test_without_a_dead_letter_address_the_first_refusal_fails_the_bridge",
        "start-position": "acceptance/kafka/test_topics.py::"
        "test_latest_counts_for_partitions_of_the_first_start_only",
        "gap-policy": "acceptance/kafka/test_trouble.py::"
        "test_what_the_source_deleted_unread_stops_the_bridge_or_is_counted",
        "open-transaction-warn-after": "kafka/source/test_trouble.py::"
        "test_what_waits_behind_an_open_transaction_is_lag_and_its_producer_is_named",
        "preserve-partitions": "acceptance/kafka/test_topics.py::"
        "test_partitions_are_the_sources_or_by_key_as_java_has_it",
        "create-topics": "acceptance/kafka/test_topics.py::"
        "test_without_create_topics_the_bridge_waits_for_the_topic",
        "add-partitions": "acceptance/kafka/test_topics.py::"
        "test_a_partition_added_while_it_runs_is_read_from_its_beginning",
        "topic-replication-factor journal-replication-factor": "acceptance/kafka/test_topics.py::"
        "test_topics_are_made_like_the_sources_with_the_replicas_of_the_settings",
        "journal-topic group-id": "acceptance/kafka/test_topics.py::"
        "test_the_journal_topic_and_the_groups_have_the_names_of_the_settings",
        "max-hops": "acceptance/kafka/test_trouble.py::test_more_hops_than_allowed_are_a_dead_letter",
    },
    "cluster-connections.*": {
        "name message-load-balancing": "cluster/test_status.py::"
        "test_nodes_queues_readers_and_counts_are_shown_and_a_dead_node_with_what_waits_for_it",
        "address": "cluster/test_routing.py::test_c14_prefixes_choose_the_addresses_and_exclusions_win",
        "connector-ref static-connectors": "cluster/test_topology.py::"
        "test_tables_become_equal_after_the_start_and_after_each_change",
        "discovery": "cluster/test_topology.py::test_nodes_find_each_other_by_a_name",
        "allow-direct-connections-only": "cluster/test_hops.py::"
        "test_c21_direct_connections_only_are_those_of_the_settings",
        "max-hops": "cluster/test_hops.py::test_c19_max_hops_1_reaches_neighbours_and_0_nothing",
        "notification-interval": "cluster/test_idle.py::test_many_nodes_that_have_nothing_to_do",
        "notification-attempts": "unit/cluster/test_exchange.py::"
        "test_a_change_of_this_node_is_told_as_often_as_the_settings_say",
        "reader-timeout": "cluster/test_redistribution.py::"
        "test_c30_what_waits_without_a_reader_goes_to_a_node_that_has_one",
    },
}
#: The keys of a cluster's connection that its links have as bridges have them (`unit/cluster/test_peers.py`).
LINKS: Final = [
    "use-duplicate-detection",
    "retry-interval",
    "retry-interval-multiplier",
    "max-retry-interval",
    "initial-connect-attempts",
    "reconnect-attempts",
    "check-period",
    "connection-ttl",
    "call-timeout",
    "confirmation-window-size",
    "producer-window-size",
    "min-large-message-size",
]
SHOWN["cluster-connections.*"] |= {
    key: shown for keys, shown in SHOWN["bridges.*"].items() for key in keys.split() if key in LINKS
}

#: The ends of a bridge, and its tables.
CONNECTORS: Final = (
    '[connectors.node]\nurl = "ws://a:1"\n[connectors.eu]\nurl = "kafka://b:1"\n'
    '[connectors.us]\nurl = "kafka://c:1"\n'
)
PAIRS: Final = (
    "journal node", "journal us", "journal journal", "eu us", "eu node", "eu journal",
)  # fmt: skip
FROM_KAFKA: Final = {pair for pair in PAIRS if pair.startswith("eu ")}
TO_KAFKA: Final = {pair for pair in PAIRS if pair.endswith(" us")}
TO_NODE: Final = {pair for pair in PAIRS if pair.endswith(" node")}
#: By key of a bridge, a value that is not the default, and the ends with which it is taken.
TAKEN: Final = {
    "previous-name": ('"before"', PAIRS),
    "use-duplicate-detection": ("false", PAIRS),
    "check-producer-ids": ("false", PAIRS),
    "filter": ('"a = 1"', PAIRS),
    "transformer": ('"shop.orders:change"', PAIRS),
    "transformer-properties": ("{ a = 1 }", ()),  # without a transformer
    "routing-type": ('"ANYCAST"', set(PAIRS) - TO_KAFKA),
    "concurrency": ("2", PAIRS),
    "priority": ("9", PAIRS),
    "retry-interval": ("5", PAIRS),
    "retry-interval-multiplier": ("2.0", PAIRS),
    "max-retry-interval": ("5000", PAIRS),
    "initial-connect-attempts": ("5", PAIRS),
    "reconnect-attempts": ("5", PAIRS),
    "reconnect-attempts-same-node": ("3", ()),  # with one connector
    "failover": ('"at-least-once"', TO_NODE),
    "fail-back": ("true", ()),  # with one connector
    "max-rate": ('"50KiB"', PAIRS),
    "schedule": ('"Mon-Fri 22:00-06:00 Europe/Berlin"', PAIRS),
    "confirmation-window-size": ('"5MiB"', PAIRS),
    "producer-window-size": ('"2MiB"', PAIRS),
    "min-large-message-size": ('"5KiB"', PAIRS),
    "check-period": ("5000", TO_NODE),
    "connection-ttl": ("40000", TO_NODE),
    "call-timeout": ("5000", set(PAIRS) - {"eu us", "eu journal"}),
    "pending-ack-timeout": ("5000", PAIRS),
    "max-delivery-attempts": ("5", ()),  # without a transformer
    "dead-letter-address": ('"letters"', PAIRS),
    "start-position": ('"latest"', FROM_KAFKA),
    "gap-policy": ('"continue"', PAIRS),
    "open-transaction-warn-after": ("5000", FROM_KAFKA),
    "preserve-partitions": ("false", TO_KAFKA),
    "create-topics": ("false", TO_KAFKA),
    "add-partitions": ("true", FROM_KAFKA & TO_KAFKA),
    "topic-replication-factor": ("2", TO_KAFKA),
    "journal-topic": ('"mine"', TO_KAFKA),
    "journal-replication-factor": ("2", TO_KAFKA),
    "group-id": ('"mine"', FROM_KAFKA),
    "max-hops": ("5", PAIRS),
}
#: Keys that make the bridge what it is.
OF_EVERY_BRIDGE: Final = {"name", "source-connector", "queue-name", "forwarding-address", "static-connectors"}


@cache
def defined_in(file: str) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_a_test_shows_what_each_key_does() -> None:
    shown = {
        f"{table}.{key}": node
        for table, rows in SHOWN.items()
        for keys, node in rows.items()
        for key in keys.split()
    }
    known = {f"{section.key}.{key}" for section in sections() for key in section.fields}
    assert shown.keys() == known
    for key, node in shown.items():
        file, _, name = node.partition("::")
        assert name in defined_in(file), f"{key}: {node}"


def bridge(pair: str, keys: str) -> str:
    source, target = pair.split()
    return (
        f'{CONNECTORS}[[bridges]]\nname = "x"\nsource-connector = "{source}"\nqueue-name = "orders"\n'
        f'forwarding-address = "copies"\nstatic-connectors = ["{target}"]\n{keys}\n'
    )


def loaded(file: Path, text: str) -> Settings:
    file.write_text(text)
    return load(file, {})


def test_every_key_of_a_bridge_is_asked_for() -> None:
    fields = next(section.fields for section in sections() if section.key == "bridges.*")
    assert TAKEN.keys() | OF_EVERY_BRIDGE == fields.keys()


@pytest.mark.parametrize("key", TAKEN)
def test_a_bridge_refuses_a_key_that_its_ends_do_not_use(settings_file: Path, key: str) -> None:
    """With the key, its rule and the value; at its default it may be written anywhere."""
    value, taken = TAKEN[key]
    for pair in PAIRS:
        text = bridge(pair, f"{key} = {value}")
        if pair in taken:
            (made,) = loaded(settings_file, text).bridges
            (plain,) = loaded(settings_file, bridge(pair, "")).bridges
            assert made != plain, pair
            continue
        with pytest.raises(SettingsInvalid) as refused:
            loaded(settings_file, text)
        (problem,) = refused.value.problems
        assert problem.key == f"bridges[0].{key} (x)", pair
        assert problem.rule.startswith("needs "), pair
