//! The store on Redis, with servers that are stopped, frozen or killed, and one that sends false
//! answers.

mod cluster;
mod engine;
mod errors;
mod failover;
mod fake;
mod incr;
mod incr_failures;
mod restart;
mod scripts;
mod sentinels;
mod silence;
#[cfg(feature = "redis-tls")]
mod tls;

use crate::engine::Engine;
use engine::Keys;

promises! { Keys:
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
    servers {
        a_server_that_is_not_there_refuses_and_a_wrong_address_is_permanent,
        an_account_or_a_right_that_is_missing_is_permanent,
        a_connection_that_was_being_made_by_another_runtime_is_made_anew,
        a_server_that_is_killed_comes_back,
        a_server_that_hangs_is_given_up_by_callers_and_by_the_store,
    }
}
