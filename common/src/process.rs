//! The run of a program, and its exit code.

use std::process::ExitCode;
use std::time::Duration;

/// Runs a server to its end on threads of its own.
pub fn serve(server: impl Future<Output = Result<bool, String>>) -> Result<bool, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let outcome = runtime.block_on(server);
    // Connections that are still open are cut here. A file or a name server that hangs does not
    // delay the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// Returns the exit code of an outcome: 0 and 1 for `true` and `false`, and 2 with its sentence on
/// stderr for an error.
pub fn exit_code(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::from(2)
        }
    }
}
