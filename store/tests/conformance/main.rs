//! The store's conformance suite: what both databases promise, each behaviour written once and listed once.
//!
//! A behaviour takes a [`support::World`]: a store on a fresh database, and a clock that is moved by hand. The list
//! below expands to a test per behaviour and database, `sqlite::…` and `postgres::…`. A behaviour that is written and
//! not listed is dead code, which the compiler says.
//!
//! PostgreSQL is the server at `TEST_DATABASE_URL`, where the user may create schemas and databases. Without it those
//! tests say that they were skipped, and fail where `CI` is set.

mod alerts;
mod attempts;
mod audit;
mod calendars;
mod cancelling;
mod claims;
mod client_requests;
mod cluster;
mod concurrency;
mod dedupe;
mod enqueue_function;
mod events;
mod fires;
mod glance;
mod hand_overs;
mod idempotency;
mod inspection;
mod instants;
mod keyed_moves;
mod leases;
mod lists;
mod migrations;
mod model;
mod outbox;
mod plans;
mod plugins;
mod pooled_only;
mod postgres_only;
mod pulls;
mod replacing;
mod schedules;
mod serial;
mod settling;
mod sqlite_only;
mod support;
mod tasks;
mod ticks;
mod topics;
mod upkeep;
mod watching;

macro_rules! behaviours {
    ($($noun:ident: $($name:ident)*;)*) => {
        mod sqlite {$(
            mod $noun {$(
                #[test]
                fn $name() {
                    crate::support::on_sqlite(crate::$noun::$name);
                }
            )*}
        )*}

        mod postgres {$(
            mod $noun {$(
                #[test]
                fn $name() {
                    crate::support::on_postgres(crate::$noun::$name);
                }
            )*}
        )*}
    };
}

behaviours! {
    hand_overs:
        a_handed_over_task_runs_without_a_lease_until_it_is_settled
        only_the_newest_epoch_can_be_handed_over
        what_was_handed_over_counts_as_running
        hand_overs_are_found_by_job_by_queue_and_by_what_is_wrong_with_them
        what_may_have_been_handed_over_is_a_stray_until_it_is_forgotten
        whatever_cancels_a_task_that_has_begun_withdraws_it_from_its_queue
        each_retry_of_a_job_is_an_attempt_with_an_epoch_of_its_own
        a_task_that_ends_while_it_rests_has_no_attempt_more
        a_job_made_anew_begins_with_the_present_attempt
        queues_are_known_with_the_place_up_to_which_they_were_read
        what_a_worker_last_said_of_its_progress_is_kept_with_the_job
        messages_are_known_to_be_in_a_queue_until_they_are_forgotten
        an_execution_is_dispatched_while_a_queue_has_its_task;
    pulls:
        a_workers_claim_is_a_claim_like_any_other
        tasks_come_in_the_order_of_claims_over_all_topics
        no_more_run_than_the_topics_concurrency_on_all_nodes
        eight_nodes_that_pull_at_once_share_the_concurrency
        a_task_that_ends_or_waits_again_makes_room
        an_expired_lease_makes_room_and_counts_as_lost
        the_third_lost_lease_fails_the_task
        no_more_begin_than_the_topics_rate_on_all_nodes
        a_rate_says_when_the_next_may_begin
        a_heartbeat_extends_by_as_long_as_the_claim_said
        a_nodes_lease_can_be_handed_to_a_worker
        a_lease_that_ran_out_or_belongs_to_a_node_is_not_extended_so
        payloads_bound_a_claim_but_for_a_single_one
        tasks_of_one_serial_key_are_pulled_one_at_a_time
        tasks_that_lost_an_attempt_are_pulled_with_the_others
        a_keyed_claim_is_answered_again_and_claims_once
        a_keyed_claim_of_nothing_is_not_remembered
        an_answer_of_its_own_is_kept
        pending_topics_are_found_by_name_and_by_prefix
        pending_topics_are_cut_at_the_limit;
    audit:
        every_field_of_an_entry_comes_back
        entries_are_filtered_and_paged_newest_first
        old_entries_and_nodes_are_pruned;
    tasks:
        a_task_can_be_read_back
        every_field_comes_back
        an_ended_task_keeps_every_field
        every_kind_of_payload_comes_back_letter_for_letter
        a_payload_of_a_mebibyte_comes_back
        the_bounds_of_every_number_come_back
        keys_of_two_hundred_characters_come_back
        the_character_nul_never_reaches_the_store
        the_stores_clock_says_when_a_task_is_due_and_was_written
        instants_keep_their_microseconds
        an_unknown_task_is_none
        ten_thousand_tasks_are_written_in_order
        a_batch_is_written_whole_or_not_at_all
        a_batch_of_nothing_makes_nothing
        a_task_written_in_a_callers_transaction_is_there_once_it_commits
        a_task_written_in_a_callers_transaction_never_was_if_it_rolls_back
        what_was_written_is_there_after_a_restart
        a_whole_life_on_the_databases_own_clock;
    instants:
        a_wait_without_end_lasts_until_the_year_9999
        a_message_without_end_waits_until_the_year_9999
        what_is_kept_without_end_is_never_pruned
        instants_outside_the_years_1_to_9999_become_the_nearest_inside
        spans_may_reach_beyond_every_year;
    dedupe:
        a_second_task_of_a_live_key_is_the_first
        a_dedupe_key_belongs_to_its_topic
        dedupe_keys_are_compared_letter_by_letter
        a_running_task_holds_its_dedupe_key
        a_task_that_waits_for_a_retry_holds_its_dedupe_key
        an_ended_task_frees_its_dedupe_key
        a_dedupe_key_twice_in_a_batch_makes_one
        a_batch_may_mix_new_tasks_and_living_ones
        eight_writers_of_one_dedupe_key_make_one_task
        racing_batches_that_share_dedupe_keys_all_succeed
        a_key_that_is_freed_in_the_same_moment_is_an_answer_either_way;
    client_requests:
        a_client_request_id_makes_one_task
        client_request_ids_are_compared_letter_by_letter
        a_client_request_id_twice_in_a_batch_is_refused
        a_client_request_id_stays_used_after_the_task_ended
        a_client_request_id_stays_used_after_retention
        a_schedule_cannot_use_the_client_request_id_of_a_task
        a_task_cannot_use_the_client_request_id_of_a_schedule
        two_schedules_cannot_share_a_client_request_id
        eight_writers_of_one_client_request_id_make_one_task
        racing_batches_that_share_client_request_ids_make_one_of_them;
    idempotency:
        a_replay_gets_the_first_answer_word_for_word
        the_answer_of_an_earlier_call_can_be_looked_up
        the_answer_is_written_from_the_tasks_that_were_made
        another_body_under_the_same_key_is_refused
        an_idempotency_key_belongs_to_its_owner
        an_answer_is_kept_for_24_hours
        a_call_that_failed_is_not_remembered
        a_replay_does_not_trip_over_its_own_client_request_id
        eight_calls_under_one_key_make_one_task
        eight_bodies_under_one_key_make_one_task
        an_answer_outlives_a_restart;
    claims:
        getting_ready_takes_nothing
        a_claim_makes_the_move_of_the_model
        a_task_that_is_written_claimed_is_as_if_it_had_been_claimed_at_once
        a_task_that_is_written_claimed_is_freed_when_its_lease_ends
        many_tasks_written_claimed_at_the_same_time_are_all_written
        only_due_tasks_are_claimed
        a_task_is_claimed_at_its_instant_and_not_a_microsecond_before
        a_claimed_task_is_not_claimed_again
        ended_tasks_are_not_claimed
        claims_go_by_priority_then_instant_then_id
        a_claim_answers_tasks_as_they_were_written_whatever_they_hold
        one_claim_answers_in_the_order_of_claims
        equal_instants_go_by_id_whatever_the_order_of_writing
        a_topic_gets_no_more_than_its_slots
        a_full_topic_does_not_starve_another
        topics_that_are_not_wanted_are_left_alone
        no_slots_no_wants_and_unknown_topics_claim_nothing
        one_claim_serves_three_hundred_topics
        epochs_only_grow
        suspects_are_claimed_as_any_other_where_they_may
        suspects_are_limited_and_the_others_take_their_slots
        suspects_are_limited_over_all_topics
        a_suspect_does_not_overtake_a_task_of_higher_priority
        due_topics_are_named_in_order_and_in_pages
        the_next_due_instant_is_the_earliest_of_a_pending_task_after_the_one_given;
    serial:
        one_task_of_a_serial_key_runs_at_a_time
        tasks_of_a_serial_key_go_in_the_order_they_were_due
        priority_does_not_overtake_within_a_serial_key
        a_retry_keeps_its_place_in_its_serial_key
        a_snooze_a_hand_over_and_a_loss_keep_the_place_too
        serial_keys_belong_to_their_topic
        different_serial_keys_run_side_by_side
        every_end_of_the_head_lets_the_next_one_go
        a_head_that_was_lost_too_often_lets_the_next_one_go
        a_blocked_serial_key_does_not_hide_what_is_behind_it
        racing_claimers_never_run_two_of_a_serial_key;
    settling:
        every_settlement_makes_the_move_of_the_model
        every_settlement_after_a_troubled_life_makes_the_move_of_the_model
        a_completed_task_shows_its_result
        the_largest_result_and_error_come_back
        a_failed_task_is_kept_with_its_error
        a_retried_task_is_due_after_its_wait
        a_snoozed_attempt_does_not_count
        a_task_handed_back_is_due_at_once_as_if_nothing_had_been
        a_batch_of_mixed_outcomes_is_answered_in_order
        a_batch_of_nothing_settles_nothing
        five_thousand_tasks_are_settled_in_one_batch
        an_old_epoch_settles_nothing
        an_epoch_from_the_future_settles_nothing
        a_task_that_does_not_run_is_not_settled
        a_settling_that_comes_again_was_before_and_changes_nothing
        a_settling_that_comes_again_was_before_also_once_the_next_attempt_runs
        a_settling_that_comes_again_was_before_also_once_the_waiting_task_was_cancelled
        another_outcome_by_a_settled_epoch_changes_nothing
        the_first_of_two_settlings_in_one_batch_counts
        a_cancelled_task_is_not_settled
        a_lease_that_ran_out_still_settles_while_nobody_took_over
        a_freed_task_is_not_settled
        a_task_that_somebody_took_over_is_settled_by_them_alone
        ended_states_never_change
        of_eight_racing_outcomes_one_is_written;
    attempts:
        a_first_try_success_shows_its_one_attempt
        a_running_task_shows_the_attempt_that_runs
        a_task_that_never_ran_shows_no_attempts
        every_attempt_is_recorded_in_order
        a_failure_for_good_is_recorded_with_its_outcome
        lost_attempts_are_recorded
        a_snoozed_attempt_is_recorded
        the_number_of_an_attempt_handed_back_comes_again
        a_cancelled_attempt_is_recorded_whoever_cancelled_it
        cancelling_between_attempts_records_no_other
        attempts_outlive_a_restart;
    leases:
        a_lease_is_extended_from_now
        a_lease_holds_until_its_instant_and_is_not_extended_at_it
        only_the_present_epoch_extends
        extensions_are_answered_in_order
        five_thousand_leases_are_extended_at_once
        the_next_expiry_is_that_of_the_earliest_lease
        an_expired_lease_is_freed_as_the_model_says
        a_lease_that_holds_is_left_alone
        an_extended_lease_outlives_its_first_instant
        the_third_loss_fails_the_task
        losses_count_over_a_whole_life
        no_more_leases_are_freed_than_asked_for
        one_pass_frees_some_and_fails_others
        what_fails_by_its_losses_is_counted_by_topic_and_origin
        a_crash_between_claim_and_settle_is_recovered
        eight_reconcilers_free_each_lease_once;
    cancelling:
        a_pending_task_is_cancelled
        a_running_task_is_cancelled_at_once
        a_cancelled_task_keeps_its_last_error
        cancelling_an_ended_task_answers_it_as_it_stands
        an_unknown_task_is_not_cancelled
        a_cancel_and_a_settle_at_once_end_the_task_once
        each_filter_cancels_what_matches_and_nothing_else
        a_bulk_cancel_looks_at_the_status
        a_bulk_cancel_takes_thousands_at_once
        a_bulk_cancel_tells_which_tasks_ran_and_not_which_wait_again;
    replacing:
        a_rescheduled_task_is_cancelled_and_replaced
        a_running_task_can_be_rescheduled
        the_dedupe_key_moves_to_the_replacement
        the_dedupe_key_of_a_third_task_is_refused
        a_used_client_request_id_keeps_a_task_from_being_rescheduled
        a_replacement_uses_up_its_client_request_id
        an_ended_task_is_not_rescheduled
        an_unknown_task_is_not_rescheduled
        eight_reschedules_of_one_task_make_one_replacement
        a_failed_task_is_retried_by_a_new_one
        the_retries_of_a_task_are_found_wherever_they_are
        a_task_that_was_lost_too_often_can_be_retried
        only_failed_tasks_are_retried
        a_retry_whose_dedupe_key_lives_is_the_living_task
        a_bulk_retry_takes_the_failed_ones_that_match
        a_bulk_retry_leaves_out_keys_that_live_again
        a_bulk_retry_of_one_key_twice_makes_one_task;
    keyed_moves:
        a_cancel_that_comes_again_gets_its_first_answer
        a_refused_cancel_is_not_remembered
        a_reschedule_that_comes_again_makes_nothing
        a_refused_reschedule_leaves_its_key_free
        a_retry_that_comes_again_makes_nothing
        eight_keyed_retries_make_one_task
        a_bulk_change_that_comes_again_changes_nothing
        a_dry_run_that_comes_again_counts_what_it_counted
        thousands_are_retried_each_once
        a_bulk_retry_that_broke_off_goes_on_where_it_stopped
        eight_calls_of_one_bulk_retry_do_it_together
        a_bulk_cancel_tells_which_tasks_ran_and_their_topics
        schedule_calls_that_come_again_make_nothing;
    lists:
        a_list_is_newest_first_over_live_and_ended_tasks
        each_status_is_listed_alone_and_together
        each_filter_finds_live_and_ended_tasks
        filters_narrow_each_other
        a_span_has_its_first_instant_and_not_its_last
        filters_compare_letter_by_letter
        a_page_has_no_more_than_its_limit
        pages_over_a_thousand_tasks_miss_and_repeat_none
        pages_are_not_disturbed_by_tasks_that_arrive_or_end;
    schedules:
        a_schedule_can_be_read_back
        every_field_of_a_schedule_comes_back
        unknown_schedules_are_none
        a_name_belongs_to_one_schedule
        eight_writers_of_one_name_make_one_schedule
        schedules_are_filtered_and_newest_first
        pages_of_schedules_miss_and_repeat_none
        an_edit_is_written_and_grows_the_version
        the_stores_clock_says_when_a_schedule_was_edited
        a_stale_edit_is_refused_with_the_present_version
        an_edit_cannot_take_the_name_of_another
        an_unknown_schedule_is_not_edited
        an_edit_leaves_what_fires_wrote
        what_was_due_before_an_edit_is_decided_as_it_was
        a_paused_schedule_is_edited_however_late_its_instants_are
        a_pause_ends_by_itself
        a_deletion_may_ask_for_a_version
        what_is_due_is_decided_before_a_deletion
        a_paused_schedule_is_deleted_however_late_its_instants_are
        a_deletion_and_a_tick_in_the_same_moment_lose_no_instant
        a_schedule_names_only_calendars_that_are_there
        of_eight_racing_edits_one_is_written
        history_tells_what_a_schedule_was_and_from_when_on
        a_schedule_that_was_deleted_was_there_once
        fires_write_no_history
        deleting_a_schedule_cancels_what_waits_and_lets_the_rest_finish
        a_deleted_schedule_is_never_due_and_its_name_is_free
        the_next_fire_is_that_of_the_earliest_schedule
        an_edit_and_a_tick_in_the_same_moment_lose_neither
        a_schedule_deleted_during_a_tick_leaves_no_task_waiting;
    ticks:
        a_due_schedule_fires_and_goes_on
        nothing_fires_before_its_instant
        a_decision_sees_the_schedule_its_live_tasks_and_its_calendars
        a_schedule_without_a_decision_stays_as_it_is
        the_longest_due_schedules_go_first
        a_paused_or_finished_schedule_does_not_fire
        a_disabled_schedule_is_never_due_whatever_its_next_instant
        the_last_fire_leaves_no_next_instant
        skipped_instants_are_one_fire_with_its_reason
        every_reason_comes_back
        an_overlapping_fire_is_skipped_while_a_task_lives
        cancel_previous_cancels_the_live_tasks_of_the_schedule
        an_instant_at_or_before_the_watermark_does_not_fire_again
        a_fire_that_is_there_is_a_lost_race_and_makes_no_task
        a_pruned_fire_does_not_fire_again
        catching_up_makes_a_thousand_fires_at_once
        many_schedules_are_decided_in_one_tick
        eight_tickers_make_each_fire_once
        a_tick_outlives_a_restart
        a_schedule_on_the_databases_own_clock;
    plans:
        fresh_schedules_and_those_behind_are_ticked_apart
        a_tick_tells_what_it_made_and_for_whom
        a_schedule_that_cannot_be_read_is_paused_and_holds_up_nobody
        a_schedule_that_cannot_be_understood_is_paused_with_a_note
        only_fresh_ticks_end_pauses
        plans_made_with_other_zone_data_are_made_anew_once
        due_tasks_are_counted_up_to_a_bound;
    watching:
        a_missed_instant_is_noted_once_whoever_sees_it
        what_is_paused_caught_up_or_on_time_is_not_missed
        missed_fires_are_read_back_in_the_order_they_were_noted
        an_instant_that_made_two_tasks_is_found_once
        tasks_that_ended_together_are_audited_together;
    fires:
        fires_show_where_their_tasks_stand
        fires_are_filtered_by_status_and_skips
        a_span_of_fires_finds_runs_that_overlap_it
        pages_of_fires_miss_and_repeat_none
        fires_of_an_unknown_schedule_are_none
        a_trigger_makes_a_task_and_leaves_the_schedule
        every_trigger_has_an_instant_of_its_own
        a_paused_schedule_can_be_triggered
        a_backfill_makes_what_has_not_fired
        a_backfill_leaves_to_a_schedule_what_it_has_still_to_decide
        a_backfill_over_its_bound_makes_nothing
        eight_backfills_of_one_stretch_make_each_fire_once
        a_fire_outlives_its_pruned_task;
    glance:
        the_newest_fires_of_many_schedules_come_at_once
        schedules_come_in_the_order_in_which_they_fire_next
        tasks_come_in_the_order_in_which_they_become_due
        what_ended_is_counted_by_minute
        failures_come_newest_first_since_an_instant
        what_fired_in_a_stretch_is_told_by_schedule
        it_is_known_whether_anything_happened
        tasks_are_counted_up_to_a_bound;
    inspection:
        a_ledger_comes_in_order_and_begins_with_the_row_before
        instants_with_several_tasks_are_found_and_retries_are_not
        deleted_schedules_are_still_known
        it_is_noted_how_far_fires_were_pruned
        a_fire_is_found_by_its_id
        what_stands_before_a_task_is_told
        who_leads_and_which_zone_data_was_noted_can_be_read
        a_look_reads_beside_whoever_owns_the_database_and_writes_nothing;
    calendars:
        a_calendar_is_written_and_replaced
        calendars_are_listed_by_name
        a_calendar_is_deleted_once
        a_calendar_in_use_is_not_deleted
        a_calendar_of_a_deleted_schedule_can_be_deleted
        a_calendar_is_created_once
        a_calendar_is_not_deleted_while_a_schedule_comes_to_name_it;
    topics:
        every_field_of_a_topic_comes_back
        every_route_comes_back
        a_topic_is_replaced_whole
        a_topic_is_added_only_where_there_is_none
        of_eight_nodes_that_add_a_topic_one_does
        topics_are_listed_by_name
        a_topic_with_a_handler_keeps_that_route
        a_handler_takes_over_what_had_another_route
        a_topic_is_paused_and_resumed_and_otherwise_stays_as_it_is
        a_topic_is_deleted_once;
    outbox:
        a_message_is_posted_and_read_back
        a_second_message_of_a_key_is_the_first
        a_key_that_was_sent_tells_what_the_provider_called_it
        a_key_stays_used_after_retention
        eight_posts_of_one_key_make_one_message
        a_taken_message_is_left_alone_until_its_lease_has_passed
        no_more_messages_are_taken_than_asked_for
        eight_senders_never_share_a_message
        a_sent_message_is_done
        a_message_is_sent_again_after_its_wait
        a_message_that_failed_waits_for_somebody
        only_failed_messages_are_retried
        an_old_epoch_records_nothing
        a_lease_that_ran_out_still_records_while_nobody_took_over
        messages_are_listed_by_status_newest_first
        the_next_message_is_the_earliest_pending_one
        a_message_on_the_databases_own_clock
        racing_posts_that_share_keys_all_succeed
        messages_are_taken_by_their_transport
        a_message_can_be_taken_as_it_is_written
        a_message_that_waits_or_failed_is_taken_at_once_by_whoever_posts_it_again
        of_eight_who_post_and_take_one_key_one_has_it
        messages_of_one_transport_can_be_sent_by_another;
    alerts:
        where_all_is_well_there_are_no_signs
        a_cause_is_told_once_an_hour_with_its_messages
        of_eight_nodes_that_raise_one_cause_one_does
        a_cause_that_a_wrong_clock_noted_far_ahead_is_told
        missed_fires_of_the_last_hour_are_signs
        ends_of_the_last_hour_are_counted_by_who_made_the_task_once_several_failed
        messages_that_wait_for_half_an_hour_are_signs
        changes_of_the_leader_are_counted_on_all_nodes_together
        alerts_on_the_databases_own_clock;
    cluster:
        facts_are_shared_by_all_nodes
        the_stores_instant_is_that_of_its_clock
        the_databases_own_clock_never_goes_backwards
        announcing_changes_nothing
        a_cluster_has_one_id_that_stays
        a_node_is_seen_when_the_store_says
        nodes_that_were_not_heard_of_are_left_out
        the_longest_running_node_comes_first
        a_removed_node_is_forgotten
        a_leader_keeps_the_leadership_while_it_renews
        nobody_takes_a_leadership_that_holds
        a_leadership_that_ran_out_changes_hands_and_its_epoch_grows
        a_leader_that_resigns_is_followed_at_once
        leaderships_are_told_apart_by_name
        of_eight_candidates_one_leads
        the_newest_zone_data_wins
        a_state_cell_is_written_by_version
        eight_racing_counters_lose_no_step
        a_key_is_found_by_its_hash
        a_revoked_key_is_not_found_but_listed;
    upkeep:
        an_ended_task_is_kept_as_long_as_asked_and_no_longer
        the_end_of_a_task_counts_not_its_beginning
        live_tasks_are_never_pruned
        attempts_go_with_their_task
        no_more_is_removed_at_once_than_asked_for
        a_topic_may_keep_its_tasks_for_less_or_more
        the_longest_match_says_how_long_tasks_are_kept
        fires_are_pruned_and_their_schedule_stays
        a_fire_stays_as_long_as_its_task_lives
        sent_messages_are_pruned_and_the_others_stay
        answers_are_pruned_after_24_hours_whatever_else_is_kept
        the_gauges_of_an_empty_store_show_nothing
        the_gauges_count_what_is_due_by_topic_and_origin
        the_load_of_topics_is_what_is_due_and_what_runs
        the_gauges_count_schedules_and_how_far_they_lag
        the_gauges_count_messages_that_wait
        upkeep_on_the_databases_own_clock
        a_skipped_fire_is_pruned_like_any_other;
    events:
        an_attempts_beginning_and_the_tasks_end_are_told
        every_end_is_told_once
        every_attempt_of_a_troubled_life_is_told_in_order
        a_task_lost_too_often_is_told_as_failed
        a_task_cancelled_before_it_ran_only_ends
        events_of_many_tasks_come_oldest_first
        a_reader_that_resumes_skips_nothing
        pages_over_a_settled_batch_tell_each_event_once
        events_of_one_task_at_one_instant_come_in_order;
    migrations:
        connecting_makes_the_schema
        an_empty_database_is_refused_where_nothing_may_change
        a_complete_schema_is_accepted_where_nothing_may_change
        each_migration_is_recorded_once
        a_newer_schema_that_needs_a_newer_binary_is_refused
        what_a_newer_schema_is_can_be_told
        a_newer_schema_that_we_can_work_on_is_accepted;
    concurrency:
        eight_claimers_share_ten_thousand_tasks_and_never_one
        racing_claimers_leave_no_due_task_behind
        claimers_that_want_topics_in_any_order_do_not_block_each_other
        everything_at_once_ends_every_task_once
        bulk_moves_over_the_same_tasks_all_succeed
        more_callers_than_connections_wait_their_turn
        a_caller_that_goes_away_leaves_nothing_half_written;
    model:
        random_lives_follow_the_model
        other_random_lives_follow_the_model
        more_random_lives_follow_the_model;
    plugins:
        a_plugins_migrations_are_applied_in_order_and_once
        a_migration_that_was_applied_in_another_form_is_refused
        a_database_ahead_of_the_plugin_lacks_nothing
        a_migration_that_fails_leaves_nothing_of_itself
        eight_nodes_that_migrate_at_once_apply_each_migration_once
        a_task_in_a_plugins_transaction_is_there_once_it_commits
        a_task_in_a_plugins_transaction_never_was_if_it_is_dropped
        an_enqueued_task_takes_what_it_leaves_open_from_its_topic
        a_task_that_cannot_be_is_refused_by_field
        a_client_request_id_makes_one_task_of_a_plugin
        a_task_cancelled_in_a_plugins_transaction_ends_if_that_commits
        plugins_and_the_store_write_side_by_side_and_nobody_fails;
}
