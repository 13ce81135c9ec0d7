//! The settings as `tollgate check` tells them, by the cases of `check.txt`.
//!
//! A case is a block of lines: `@` options, `|` a line of the file, and then `!` the mistake, `!~`
//! a part of it, `=` a line of the description, `~` a part of one, `-` a part that no line has.
//! Runs of spaces count as one, and a `&` in an option is a space.

use std::fs;

use super::process::tollgate;
use super::support::Folder;

#[test]
fn each_case_has_its_line() {
    let cases = include_str!("check.txt");
    let (folder, mut wrong, mut count) = (Folder::new(), Vec::new(), 0);
    for case in cases.split("\n\n").filter(|case| case.lines().any(|line| !line.starts_with('#'))) {
        count += 1;
        let lines = || case.lines().filter_map(|line| line.split_once(' ').or(Some((line, ""))));
        let of =
            |mark: &str| lines().filter(move |line| line.0 == mark).map(|line| line.1).collect::<Vec<_>>();
        let (options, text) = (of("@").join(" "), of("|"));
        let file = folder.write("tollgate.toml", &(text.join("\n") + "\n"));
        let mut args = vec!["check"];
        if !text.is_empty() {
            args.extend(["--config", &file, "--demo"]);
        }
        let options: Vec<_> = options.split_whitespace().map(|option| option.replace("&", " ")).collect();
        args.extend(options.iter().map(|option| &**option));
        let output = tollgate(&args);
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let told = read(&output.stdout);
        let told: Vec<String> =
            told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let (error, place) = (read(&output.stderr), format!("{file}:"));
        let mistake = error.trim_end().strip_prefix("error: ").map(|error| error.replace(&place, ""));
        let (whole, part) = (of("!"), of("!~"));
        let is_mistake = whole.iter().chain(&part).count() > 0;
        let right = match &mistake {
            Some(mistake) => {
                whole.iter().all(|whole| whole == mistake)
                    && part.iter().all(|part| mistake.contains(part))
                    && of("-").iter().all(|part| !mistake.contains(part))
                    && is_mistake
                    && (output.status.code(), mistake.lines().count(), told.len()) == (Some(2), 1, 0)
            }
            None => {
                of("=").iter().all(|line| told.iter().any(|own| own == line))
                    && of("~").iter().all(|part| told.iter().any(|own| own.contains(part)))
                    && of("-").iter().all(|part| told.iter().all(|own| !own.contains(part)))
                    && !is_mistake
                    && (output.status.code(), told.is_empty()) == (Some(0), false)
            }
        };
        if !right {
            wrong.push(format!("{case}\n    is {}", mistake.unwrap_or(told.join("\n       "))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 150, "{count} cases");
}

/// Cases that are no lines of text.
#[test]
fn a_file_that_may_have_been_cut_is_a_mistake() {
    let folder = Folder::new();
    let file = folder.path("tollgate.toml");
    let large = vec![b'\n'; (1 << 20) + 1];
    let cut = "the last line does not end with a newline: the file may have been cut";
    for (bytes, error) in [
        (&b"shadow = true\nipv4_prefix = 10"[..], format!("{file}:2:17: {cut}")),
        (b"", format!("{file}:1:1: the file is empty: no setting is named")),
        (b"via = \"\xc3\xa4\xff\"\n", format!("{file}:1:9: a byte that is not UTF-8")),
        (&large, format!("{file} is over the bound of 1048576 bytes")),
    ] {
        fs::write(&file, bytes).expect("it can be written");
        let output = tollgate(&["check", "--config", &file]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {error}\n"));
        assert_eq!(output.status.code(), Some(2));
    }
    // Without `--demo` and without an upstream there is nothing to serve.
    fs::write(&file, "shadow = true\n").expect("it can be written");
    let error = tollgate(&["check", "--config", &file]).stderr;
    assert!(String::from_utf8_lossy(&error).contains("no upstream is named"));
}
