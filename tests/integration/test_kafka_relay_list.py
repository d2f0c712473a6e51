"""What the tests of kafka-outbox-relay show, as a numbered list: where each of
it is shown here, with the right outcome where that relay's is wrong."""
import pytest

from test_conformance_list import definitions

COVERED = {
    1: ["test_k1_rows_reach_kafka_with_value_headers_and_key"],
    2: ["test_k2_rows_that_no_topic_takes_are_errored_and_others_pass"],
    3: ["test_k3_rows_that_another_relay_left_are_taken_when_their_time_is_up"],
    4: ["test_k4_k5_cleanup_removes_what_is_old_and_keeps_what_is_fresh"],
    5: ["test_k4_k5_cleanup_removes_what_is_old_and_keeps_what_is_fresh"],
    6: ["test_k6_cleanup_tells_the_sidecar"],
    # Its statements, by what they do on each database: claiming writes nothing
    # here, fetching, success, error and deleting.
    7: ["test_rows_come_in_the_order_of_ids_with_their_place",
        "test_done_rows_are_marked_in_one_go",
        "test_a_row_that_failed_for_good_says_why_as_far_as_there_is_room",
        "test_counts_tell_the_truth_and_cleaning_keeps_what_is_fresh"],
    8: ["test_k8_k9_an_empty_table_gives_nothing_and_a_missing_one_an_error"],
    9: ["test_k8_k9_an_empty_table_gives_nothing_and_a_missing_one_an_error"],
    10: ["test_k10_all_results_of_a_batch_are_recorded_together"],
    # Not swallowed: the outcomes are kept and recorded when that is possible.
    11: ["test_k11_k12_k13_what_cannot_be_recorded_changes_nothing"],
    # It does: what is recorded in part would be told twice.
    12: ["test_k11_k12_k13_what_cannot_be_recorded_changes_nothing"],
    13: ["test_k11_k12_k13_what_cannot_be_recorded_changes_nothing"],
    14: ["test_what_comes_while_it_runs_is_sent_too",
         "test_missing_tables_are_waited_for",
         "test_a_stop_finishes_what_is_in_flight"],
    15: ["test_a_bad_row_is_errored_at_once_and_good_ones_arrive",
         "test_a_large_row_in_a_batch_does_not_take_others_along",
         "test_a_stop_finishes_what_is_in_flight"],
    16: ["test_k1_rows_reach_kafka_with_value_headers_and_key",
         "test_a_bad_row_is_errored_at_once_and_good_ones_arrive"],
    17: ["test_k1_rows_reach_kafka_with_value_headers_and_key",
         "test_a_tombstone_has_no_value_and_a_null_key_is_null"],
    18: ["test_the_partition_follows_the_partition_key_by_either_hash",
         "test_a_key_lies_where_java_and_go_put_it"],
    19: ["test_k19_k20_health_and_metrics_tell_the_truth"],
    20: ["test_k19_k20_health_and_metrics_tell_the_truth"],
    21: ["test_k21_jobs_do_not_hide_mistakes_and_the_sidecar_is_told",
         "test_k4_k5_cleanup_removes_what_is_old_and_keeps_what_is_fresh"],
    22: ["test_k22_settings_are_read_and_mistakes_named",
         "test_k22_flags_are_written_as_go_has_them"],
}


@pytest.mark.quick
def test_every_number_of_the_list_is_shown():
    known = definitions()
    assert sorted(COVERED) == list(range(1, 23))
    for number, where in COVERED.items():
        assert where and set(where) <= known, f"K{number}: {where}"
