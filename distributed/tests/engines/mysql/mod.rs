//! The store of MariaDB.

mod engine;
mod faults;
mod laws;
mod text;
mod tokens;

use crate::engine::Engine;
use crate::suite::intervals::Table;
use engine::{Intervals, MySql};

promises! { MySql:
    laws {
        each_step_and_each_row_is_the_step_of_the_law,
        each_step_of_a_window_and_each_row_is_the_step_of_the_law,
        a_step_back_of_the_clock_mints_nothing_and_stalls_a_second,
        each_key_has_its_own_bucket,
        a_row_that_is_no_bucket_fails_its_call_and_names_the_key,
    }
    count_walk { months_of_another_time_are_an_error_of_their_call, }
    counts {
        a_row_that_is_no_count_fails_its_call_and_names_the_key,
        many_counts_and_a_hot_one_have_their_limits_under_load,
        a_clean_up_deletes_only_counts_that_are_over,
    }
    before { earlier_processes_and_present_ones_share_a_bucket, }
    all_or_none {
        calls_are_granted_together_or_not_at_all,
        callers_of_the_same_keys_do_not_block_each_other,
    }
    load {
        no_token_is_lost_or_made_under_load,
        batches_in_opposite_orders_do_not_deadlock,
        ended_sessions_make_no_token_and_heal,
    }
    locks {
        a_call_that_changes_nothing_writes_nothing,
        a_call_that_lost_a_race_is_denied_by_the_row_that_won,
        a_call_whose_caller_has_gone_is_not_sent,
        a_lock_that_is_not_released_refuses_and_takes_nothing,
        a_part_that_is_missing_is_permanent_until_it_is_made,
    }
    servers {
        a_server_that_is_not_there_refuses_and_a_wrong_address_is_permanent,
        an_account_or_a_right_that_is_missing_is_permanent,
        a_connection_that_was_being_made_by_another_runtime_is_made_anew,
        a_server_that_is_killed_comes_back,
        a_server_that_hangs_is_given_up_by_callers_and_by_the_store,
    }
    clean { a_clean_up_deletes_only_rows_that_decide_nothing, }
}

promises! { Intervals:
    intervals {
        tokens_at_intervals_keep_the_law,
        twice_the_capacity_is_granted_in_the_time_of_an_interval,
        ids_with_different_bytes_have_different_buckets,
    }
}
