"""The table of limits in docs/operations.md: each row says what the code has, and a test drives it there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bridge.filters import limits as filter_limits
from bridge.http import authentication, bodies, handshakes
from bridge.http import limits as http_limits
from bridge.journal import shared_queues, unfinished, uploads
from bridge.journal.rules import owners
from bridge.journal.sqlite import damage, pages, repair
from bridge.journal.values import options
from bridge.kafka.client import fetch_limits
from bridge.kafka.client.known_options import KAFKA_OPTIONS
from bridge.kafka.replay import topic_ids
from bridge.kafka.source import sent_log
from bridge.kafka.target import dead_letters, delivery_queue
from bridge.link import limits as link_limits
from bridge.messages import message
from bridge.relay import pump
from bridge.relay.relay import RelayOptions
from bridge.runtime import foreign_code, log_output, logs, tunnels
from bridge.settings.addresses import AddressSettingsTable
from bridge.settings.bridges import Bridge
from bridge.settings.fields import MOST_CALLERS, key_of
from bridge.settings.listeners import Acceptor
from bridge.settings.model import DeliveryLog
from bridge.transformers.parts import TransformerOptions
from bridge.workers import channel, lines
from tests.unit.test_operations_doc import section

TESTS: Final = Path(__file__).parents[1]
KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Limit(NamedTuple):
    """What a row of the table is held to."""

    #: The limit as the table writes it, of what the code has.
    shown: str
    #: ``path::name`` of the test that drives it there.
    test: str


def size(found: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if found % unit == 0:
            return f"{found // unit} {name}"
    return str(found)


def count(found: int) -> str:
    return f"{found:,}"


_ACCEPTOR: Final = Acceptor()
_BRIDGE: Final = Bridge.model_validate({"name": "b", "queue-name": "orders", "static-connectors": ["hub"]})
_FETCH: Final = fetch_limits.fetch_options(_BRIDGE.producer_window_size_bytes, {})
_LINK: Final = "unit/link/test_receiver.py"
_HTTP: Final = "acceptance/test_http.py"
_PAGES: Final = "contracts/http/test_pages.py"
_UNIT_HTTP: Final = "unit/http/test_limits.py"
_LARGE: Final = "integration/journal/test_large_bodies.py"
_LARGE_BRIDGED: Final = "integration/relay/test_large_bodies.py"
_RESUMED: Final = "integration/relay/test_resumed_bodies.py"
_JOURNAL: Final = "integration/journal/test_limits.py"
LIMITS: Final = {
    "stored bytes of an address": Limit(
        size(options.AddressPolicy().max_size_bytes),
        f"{_HTTP}::test_a_full_address_with_policy_fail_answers_at_once",
    ),
    "the data directory": Limit("the disk", "fault/test_full_volume.py::test_a_filled_volume_can_be_emptied"),
    "addresses": Limit(
        count(_ACCEPTOR.max_addresses), f"{_JOURNAL}::test_no_more_than_max_addresses_are_made"
    ),
    "readers' queues": Limit(
        count(_ACCEPTOR.max_queues), f"{_JOURNAL}::test_no_more_than_max_queues_are_made"
    ),
    "leases of a queue": Limit(
        count(options.LEASES),
        "integration/journal/test_queues.py::test_a_queue_has_at_most_so_many_leases",
    ),
    "a client's filter of a queue": Limit(
        f"{count(http_limits.FILTER_CHARS_MAX)} characters",
        "unit/http/test_refusals.py::test_a_filter_that_is_refused",
    ),
    "texts that a condition handles for one message": Limit(
        f"{count(filter_limits.STEPS_MOST)} characters",
        "unit/filters/test_limits.py::test_a_condition_that_handles_too_much_text_cannot_be_evaluated",
    ),
    "queues of an address with a filter": Limit(
        count(options.FILTERED_QUEUES),
        "integration/journal/test_queue_filters.py::test_an_address_has_at_most_so_many_queues_with_a_filter",
    ),
    "queues of an address that went by themselves, with messages stored that they have settled": Limit(
        count(options.GONE_QUEUES),
        "integration/journal/test_unused.py::test_so_many_queues_that_went_are_remembered",
    ),
    "leased stretches of a queue with a filter": Limit(
        count(options.LEASED_INTERVALS),
        "integration/journal/test_queue_filters.py::test_a_queue_has_at_most_so_many_leased_stretches",
    ),
    "blocks that a lease passes over at once": Limit(
        count(options.PASSED_BLOCKS),
        "integration/journal/test_queue_filters.py::test_a_lease_that_passes_over_many_blocks_goes_on_in_another_command",
    ),
    "duplicate IDs of an address": Limit(
        count(options.AddressPolicy().id_cache_size),
        "unit/dedup/test_cache.py::test_the_next_id_overwrites_the_oldest",
    ),
    "a duplicate ID": Limit(
        size(_ACCEPTOR.max_duplicate_id_size_bytes),
        f"{_HTTP}::test_an_id_above_max_duplicate_id_size_is_refused",
    ),
    "a message": Limit(
        size(_ACCEPTOR.max_message_size_bytes), f"{_HTTP}::test_a_message_above_max_message_size_is_too_large"
    ),
    "a body in one piece": Limit(
        size(message.WHOLE_BODY_BYTES),
        f"{_LARGE_BRIDGED}::test_a_bridge_that_needs_bodies_whole_gets_them_up_to_a_limit",
    ),
    "a CloudEvent in its body": Limit(
        size(http_limits.EVENT_BYTES_MAX),
        "contracts/http/test_sends.py::test_a_cloud_event_in_its_body_has_a_limit",
    ),
    "a large body in memory": Limit(
        size(message.CHUNK_BYTES),
        "fault/test_large_messages.py::test_a_large_message_crosses_two_nodes_whose_memory_it_does_not_take",
    ),
    "large bodies on their way into a journal": Limit(
        count(uploads.UPLOADS_MOST), f"{_LARGE}::test_uploads_have_a_limit"
    ),
    "bytes of a bridge's body that are not a chunk yet": Limit(
        size(unfinished.TAIL_BYTES), f"{_RESUMED}::test_small_pieces_share_a_chunk"
    ),
    "large bodies that are kept for the link to come": Limit(
        count(unfinished.UNFINISHED_MOST),
        f"{_RESUMED}::test_beyond_a_limit_the_body_goes_that_was_kept_for_longest",
    ),
    "bytes of these": Limit(
        size(unfinished.UNFINISHED_BYTES),
        f"{_RESUMED}::test_beyond_a_limit_the_body_goes_that_was_kept_for_longest",
    ),
    "time for which they are kept": Limit(
        f"{unfinished.UNFINISHED_MS // 3_600_000} h",
        f"{_RESUMED}::test_a_body_that_nobody_goes_on_with_goes_after_a_day",
    ),
    "a large body in a page": Limit(
        size(pages.LARGE_IN_PAGE_BYTES), f"{_LARGE}::test_a_page_has_a_large_body_that_it_has_room_for"
    ),
    "headers of a request": Limit(
        size(_ACCEPTOR.max_headers_size_bytes), f"{_HTTP}::test_headers_above_max_headers_size_are_too_large"
    ),
    "header fields of a request": Limit(
        count(http_limits.HEADER_FIELDS_MAX), f"{_UNIT_HTTP}::test_headers_above_their_limit_are_refused"
    ),
    "messages of a transaction": Limit(
        count(http_limits.TRANSACTION_MESSAGES_MAX),
        "contracts/http/test_transactions.py::test_a_transaction_may_hold_ten_thousand_messages_and_no_more",
    ),
    "a transaction's body": Limit(
        size(http_limits.Limits().transaction_size),
        "unit/http/test_refusals.py::test_each_message_of_a_transaction_is_measured_and_the_whole_is_too",
    ),
    "a turn of a transaction": Limit(
        size(http_limits.TRANSACTION_PIECE_BYTES),
        "unit/http/test_large_transactions.py::test_others_have_their_turn_between_two_pieces",
    ),
    "a body of settings, leases or a replay": Limit(
        size(bodies.SMALL_BODY_BYTES_MAX), "unit/http/test_refusals.py::test_a_small_body_is_small"
    ),
    "messages of a page": Limit(
        count(http_limits.MESSAGES_A_PAGE_MAX), f"{_PAGES}::test_numbers_of_a_page_have_limits"
    ),
    "bytes of a page": Limit(
        size(http_limits.PAGE_BYTES_MAX),
        "integration/journal/test_queues.py::test_many_large_messages_come_in_pages_of_the_size_asked_for",
    ),
    "text of a page": Limit(
        size(http_limits.PAGE_TEXT_BYTES_MAX),
        f"{_PAGES}::test_the_text_of_a_page_has_24_mib_at_most_whatever_it_escapes",
    ),
    "connections": Limit(
        count(_ACCEPTOR.max_connections), f"{_HTTP}::test_more_than_max_connections_are_too_busy"
    ),
    "links that are opened at a time": Limit(
        count(handshakes.HANDSHAKES_MOST),
        "unit/http/test_handshakes.py::test_so_many_links_are_opened_at_a_time_and_the_others_in_their_order",
    ),
    "requests": Limit(count(_ACCEPTOR.max_requests), f"{_HTTP}::test_more_than_max_requests_are_too_busy"),
    "bodies and pages on their way": Limit(
        size(_ACCEPTOR.max_transit_size_bytes), f"{_HTTP}::test_bodies_on_their_way_have_one_limit"
    ),
    "held sends": Limit(
        count(_ACCEPTOR.max_held_requests), f"{_HTTP}::test_no_more_than_max_held_requests_are_held"
    ),
    "bytes of held sends": Limit(
        size(_ACCEPTOR.max_held_size_bytes), f"{_HTTP}::test_a_full_address_holds_up_no_other_and_no_reader"
    ),
    "messages before their commit": Limit(
        size(options.INBOX_BYTES), f"{_JOURNAL}::test_so_much_waits_for_a_commit_and_no_more"
    ),
    "rights remembered of a user": Limit(
        count(authentication._ADDRESSES_REMEMBERED_MAX),
        "unit/http/test_authentication.py::test_what_was_said_of_many_addresses_is_not_kept_for_ever",
    ),
    "streams of a link": Limit(
        count(link_limits.STREAMS_MOST), f"{_LINK}::test_a_link_has_at_most_so_many_streams"
    ),
    "batches of a link without a receipt": Limit(
        count(link_limits.UNANSWERED_MOST),
        f"{_LINK}::test_too_many_unanswered_batches_are_cut_off_whatever_their_size",
    ),
    "batches of a link in memory": Limit(
        size(link_limits.BUFFERED_MOST),
        f"{_LINK}::test_nothing_more_is_read_while_batches_of_many_entries_are_not_answered",
    ),
    "frames of all links as they come, and batches until they are stored": Limit(
        size(_ACCEPTOR.max_link_size_bytes),
        "integration/link/test_link.py::test_many_links_with_unfinished_frames_stay_within_max_link_size",
    ),
    "bytes of a frame, or of a request's body, as they come": Limit(
        f"{count(link_limits.LEAST_RATE)} a second at least",
        "unit/link/test_liveness.py::test_a_byte_in_each_few_seconds_is_too_slow_and_the_reason_has_its_numbers",
    ),
    "the content of a compressed frame": Limit(
        size(link_limits.largest_frame(_ACCEPTOR.max_message_size_bytes)),
        "unit/link/test_compression.py::"
        "test_a_content_above_the_largest_frame_is_refused_before_it_is_unpacked",
    ),
    "the window of a compressed frame": Limit(
        size(link_limits.WINDOW_MOST),
        "unit/link/test_zstd.py::test_a_window_above_the_largest_is_refused_in_one_segment_too",
    ),
    "deliveries of a link under way": Limit(
        count(link_limits.DELIVERIES_MOST), f"{_LINK}::test_at_most_so_many_are_at_the_target_at_once"
    ),
    "OPENs of a link without an answer": Limit(
        count(link_limits.OPENS_MOST),
        f"{_LINK}::test_nothing_more_is_read_while_so_many_opens_wait_for_the_target",
    ),
    "a proxy's answer to CONNECT": Limit(
        size(tunnels.ANSWER_MOST),
        "integration/link/test_proxies.py::test_each_refusal_of_connect_is_a_sentence",
    ),
    "answers that a link's peer does not read": Limit(
        count(link_limits.ANSWERS_MOST),
        f"{_LINK}::test_nothing_more_is_read_while_the_answers_to_pings_are_not",
    ),
    "a notice of an extension on a link": Limit(
        size(link_limits.NOTICE_MOST),
        "unit/link/test_notices.py::test_a_notice_that_is_too_large_is_not_sent_and_closes_where_it_comes",
    ),
    "notices of an end of a link that wait to leave": Limit(
        count(link_limits.NOTICES_MOST),
        "unit/link/test_notices.py::test_so_many_wait_to_leave_and_no_more",
    ),
    "streams of a user": Limit(
        count(owners.STREAMS_MOST), f"{_JOURNAL}::test_a_user_has_at_most_so_many_streams"
    ),
    "dead-letter streams of a user": Limit(
        count(owners.LETTER_STREAMS_MOST), f"{_JOURNAL}::test_a_user_has_at_most_so_many_streams"
    ),
    "what a bridge has sent without a receipt": Limit(
        size(RelayOptions("orders-to-hub").confirmation_window_size),
        "unit/relay/test_window.py::test_never_above_the_limit_except_for_a_single_batch",
    ),
    "intervals of settled messages that a bridge's filter leaves in a shared queue": Limit(
        count(shared_queues.INTERVALS_MOST),
        "integration/journal/test_shared_queues.py::test_what_a_filter_leaves_is_limited",
    ),
    "what a bridge has taken from shared queues of an address": Limit(
        size(RelayOptions("orders-to-hub").confirmation_window_size),
        "integration/journal/test_shared_queues.py::test_no_more_than_a_window_is_taken_ahead_of_the_target",
    ),
    "messages that a filter or transformer has left out without coverage": Limit(
        size(pump.COVERAGE_BYTES),
        "unit/relay/test_filtering.py::test_much_that_is_rejected_is_covered_at_once",
    ),
    "calls of a bridge's transformer at a time": Limit(
        count(MOST_CALLERS),
        "unit/settings/test_wrong_files.py::test_wrong_file_is_answered_with_the_exact_lines",
    ),
    "messages made ahead of a slow call of a transformer": Limit(
        size(TransformerOptions("shop:seen").batch_bytes),
        "unit/transformers/test_callers.py::test_what_is_made_ahead_of_a_slow_call_is_bounded_by_a_batch_in_bytes",
    ),
    "delivery-log lines that wait": Limit(
        "the disk", "integration/node/test_outbox.py::test_lines_wait_while_their_files_cannot_be_written"
    ),
    "files of the delivery log": Limit(
        size(DeliveryLog().retention_size_bytes),
        "unit/delivery_log/test_lines_and_segments.py::test_files_are_deleted_by_size_from_the_oldest_on_and_the_open_one_never",
    ),
    "age of the delivery log": Limit(
        f"{DeliveryLog().retention_time_ms // 86_400_000} d",
        "unit/delivery_log/test_lines_and_segments.py::test_files_are_deleted_by_age",
    ),
    "damaged places of the journal that are remembered": Limit(
        count(damage.PLACES_MOST),
        "integration/journal/test_repair.py::test_only_so_many_places_are_remembered",
    ),
    "reads that fail before `journal skip-damaged` counts the rest of a table as lost": Limit(
        count(repair.FAILURES_MOST),
        "integration/journal/test_repair.py::test_reads_that_fail_come_to_an_end",
    ),
    "lines of rejected duplicates in the log": Limit(
        f"one in {logs.RATE_LIMIT_S:g} s",
        "unit/runtime/test_logs.py::test_rejected_duplicates_are_logged_at_most_once_a_second_and_none_goes_uncounted",
    ),
    "log lines that wait for a slow reader of stderr": Limit(
        size(log_output.LOG_BUFFER_BYTES),
        "unit/runtime/test_log_output.py::test_lines_beyond_the_buffer_are_dropped_and_a_line_says_how_many",
    ),
    "texts of libraries in the log": Limit(
        count(logs.LIBRARY_TEXTS),
        "unit/runtime/test_logs.py::test_only_so_many_texts_of_libraries_are_remembered",
    ),
    "lines of worker processes in memory": Limit(
        f"{count(lines.MOST_CHARS)} characters",
        "unit/workers/test_lines.py::test_a_worker_cannot_fill_its_supervisors_memory",
    ),
    "a text that a worker reports": Limit(
        f"{count(channel.MOST_TEXT_CHARS)} characters",
        "unit/workers/test_channel.py::test_the_longest_texts_there_are_fit_into_a_line",
    ),
    "a worker's message": Limit(
        size(channel.MOST_LINE_BYTES),
        "unit/workers/test_channel.py::test_a_line_beyond_the_limit_breaks_the_channel",
    ),
    "a node's message to a worker, with the settings": Limit(
        size(channel.MOST_ORDER_BYTES),
        "unit/workers/test_channel.py::test_a_supervisor_is_understood",
    ),
    "loads of transformers and ends that have not returned": Limit(
        count(foreign_code.LOADS_MOST),
        "unit/runtime/test_foreign_code.py::test_loads_that_do_not_return_are_bounded",
    ),
    "a fetch from a Kafka broker": Limit(
        size(_FETCH["fetch_max_bytes"]),
        "unit/kafka/client/test_fetch_limits.py::test_each_partition_has_room_in_every_fetch",
    ),
    "a partition's part of a fetch": Limit(
        size(_FETCH["max_partition_fetch_bytes"]),
        "kafka/source/test_reading.py::test_no_partition_waits_for_more_than_a_fetch_of_the_others",
    ),
    "a transaction to Kafka": Limit(
        size(delivery_queue.TRANSACTION_BYTES),
        "unit/kafka/target/test_delivery_queue.py::test_a_transaction_takes_what_has_come_until_it_has_enough",
    ),
    "messages of a transaction to Kafka": Limit(
        count(delivery_queue.TRANSACTION_MESSAGES),
        "unit/kafka/target/test_delivery_queue.py::test_a_transaction_takes_what_has_come_until_it_has_enough",
    ),
    "letters of a Kafka target in memory": Limit(
        size(dead_letters.MOST_KEPT_BYTES),
        "unit/kafka/target/test_dead_letters.py::test_what_is_kept_is_bounded_by_leaving_bodies_out",
    ),
    "sent lines of a Kafka source in memory": Limit(
        size(sent_log.MOST_WAITING_BYTES),
        "unit/kafka/source/test_sent_log.py::test_confirmations_wait_while_too_much_waits_for_the_disk",
    ),
    "IDs looked for by a replay at Kafka": Limit(
        count(topic_ids.ENTRIES_MOST),
        "unit/kafka/replay/test_topic_ids.py::test_more_than_the_limit_is_refused_with_the_limit",
    ),
}


def rows() -> dict[str, list[str]]:
    """The table's cells by what grows."""
    lines_of_table = [line for line in section("Limits").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines_of_table]
    assert cells[0] == ["what grows", "limit", "set by", "at the limit"]
    return {name: rest for name, *rest in cells[1:]}


def test_every_row_has_a_limit_of_the_code_and_a_test() -> None:
    assert list(rows()) == list(LIMITS)


@pytest.mark.parametrize("name", LIMITS)
def test_a_row_says_what_the_code_has_and_what_happens(name: str) -> None:
    limit, setting, then = rows()[name]
    assert limit == LIMITS[name].shown
    assert then
    tables = (Acceptor, Bridge, DeliveryLog, AddressSettingsTable)
    known = {field.alias or key_of(key) for table in tables for key, field in table.model_fields.items()}
    assert set(re.findall(r"`([a-z-]+)`", setting)) <= known | KAFKA_OPTIONS.keys()
    assert setting or limit == "the disk"


@pytest.mark.parametrize("name", LIMITS)
def test_the_test_that_drives_a_row_to_its_limit_is_there(name: str) -> None:
    path, _, function = LIMITS[name].test.partition("::")
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert function in {node.name for node in tree.body if isinstance(node, functions)}
