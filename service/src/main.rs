//! `tollgate`: a rate limit service on the rate limiter of that name.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_server::command::run(std::env::args_os())
}
