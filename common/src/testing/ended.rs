//! Commands that end.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tollgate_testing::wire::PATIENCE;

/// The end of a command: its exit code, and its texts.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Ended {
    /// Checks that the command has failed with one line on stderr, and nothing else.
    pub fn assert_mistake(&self, begin: &str, part: &str) {
        let Ended { code, out, error } = self;
        assert_eq!((*code, error.lines().count(), &**out), (Some(2), 1, ""), "{begin} {part}: {error}");
        assert!(error.starts_with(&format!("error: {begin}")), "{begin:?} is not before {error}");
        assert!(error.contains(part), "no {part:?} in {error}");
    }

    /// Checks that the command has succeeded without a complaint, and returns its text.
    pub fn text(self) -> String {
        assert_eq!((self.code, &*self.error), (Some(0), ""));
        self.out
    }
}

/// Returns the words of a line of options. A `&` in a word is a space.
pub fn words(options: &str) -> Vec<String> {
    options.split_whitespace().map(|word| word.replace('&', " ")).collect()
}

/// Runs a program to its end, with the words of a line. One that goes on is killed after
/// [`PATIENCE`].
pub fn run(program: &str, line: &str) -> Ended {
    let arguments = words(line);
    let mut command = Command::new(program);
    command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let pid = child.id().to_string();
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
        panic!("{arguments:?} does not end");
    };
    let output = output.expect("its output is read");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), out: text(&output.stdout), error: text(&output.stderr) }
}
