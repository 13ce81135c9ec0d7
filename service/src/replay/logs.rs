//! The logs of a replay: each is read once, and all are merged by the times of their lines.
//!
//! A log that is rotated is many files, and a shell names them in the order of their names. A file
//! is opened when its time has come, so that few are open at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use serde_json::{Value, json};

use super::order::{Ordered, SPAN};

/// The most bytes of a line. The rest of a longer one is another line, which cannot be read.
const MAX_LINE: u64 = 1 << 20;
/// The most lines that are read to find the first time of a file.
const MAX_HEAD: usize = 1_000;
/// The most characters of a line that are shown.
const MAX_SHOWN: usize = 160;
/// The first bytes of files that are compressed, and the command that reads them.
const COMPRESSED: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstdcat"), (b"\xfd7zXZ\0", "xzcat"), (b"BZh", "bzcat")];

/// Reads a line.
pub(super) type ReadLine<'r, T> = &'r dyn Fn(&str) -> Option<(Duration, T)>;

/// A file, a pipe or the standard input.
pub(super) struct LogSource<T> {
    pub(super) name: String,
    reader: Option<Box<dyn BufRead>>,
    ordered: Ordered<T>,
    /// The value that is next in the order of all logs.
    next: Option<T>,
    pub(super) lines: u64,
    pub(super) unreadable: u64,
    /// The first line that cannot be read, and its number.
    first: Option<(u64, String)>,
    /// The lines that are later than the order can mend.
    pub(super) late: u64,
}

impl<T> LogSource<T> {
    pub(super) fn new(name: &str) -> LogSource<T> {
        LogSource {
            name: name.to_owned(),
            reader: None,
            ordered: Ordered::new(),
            next: None,
            lines: 0,
            unreadable: 0,
            first: None,
            late: 0,
        }
    }

    /// A log that is open already.
    #[cfg(test)]
    pub(super) fn of(name: &str, reader: impl BufRead + 'static) -> LogSource<T> {
        LogSource { reader: Some(Box::new(reader)), ..LogSource::new(name) }
    }

    fn cannot(&self, error: &io::Error) -> String {
        format!("cannot read {}: {error}", self.name)
    }

    /// Opens the log. `-` is the standard input.
    fn open(&mut self) -> Result<(), String> {
        let plain: io::Result<Box<dyn BufRead>> = match &*self.name {
            "-" => Ok(Box::new(io::stdin().lock())),
            path => File::open(path)
                .map(|file| -> Box<dyn BufRead> { Box::new(BufReader::with_capacity(1 << 16, file)) }),
        };
        let opened = plain.and_then(|mut plain| Ok((plain.fill_buf()?.to_vec(), plain)));
        let (head, plain) = opened.map_err(|error| self.cannot(&error))?;
        if let Some((_, command)) = COMPRESSED.iter().find(|(magic, _)| head.starts_with(magic)) {
            let name = &self.name;
            return Err(format!(
                "{name} is compressed: `{command} {name} | tollgate replay ..`, with `-` as the log"
            ));
        }
        self.reader = Some(match head.starts_with(b"\x1f\x8b") {
            true => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(plain))),
            false => plain,
        });
        Ok(())
    }

    /// Returns the earliest time that a line of the log may have. A pipe cannot be read twice, so
    /// it is opened, and has the earliest of all.
    fn begin(&mut self, read: ReadLine<'_, T>) -> Result<Duration, String> {
        if self.reader.is_some() {
            return Ok(Duration::ZERO);
        }
        self.open()?;
        if !fs::metadata(&self.name).is_ok_and(|file| file.is_file()) {
            return Ok(Duration::ZERO);
        }
        let mut line = Vec::new();
        let mut begin = None;
        for _ in 0..MAX_HEAD {
            if begin.is_some() || self.fill(&mut line)? == 0 {
                break;
            }
            begin = read(&text_of(&line)).map(|(at, _)| at.saturating_sub(SPAN));
        }
        self.reader = None;
        Ok(begin.unwrap_or_default())
    }

    /// Reads the next line, and returns its bytes.
    fn fill(&mut self, line: &mut Vec<u8>) -> Result<usize, String> {
        line.clear();
        let Some(reader) = &mut self.reader else { return Ok(0) };
        Read::take(reader, MAX_LINE).read_until(b'\n', line).map_err(|error| self.cannot(&error))
    }

    /// Goes on to the next value, and returns its time.
    fn advance(
        &mut self,
        read: ReadLine<'_, T>,
        seen: &mut dyn FnMut(usize),
    ) -> Result<Option<Duration>, String> {
        let mut line = Vec::new();
        let next = loop {
            if let Some(next) = self.ordered.next() {
                break Some(next);
            }
            let bytes = self.fill(&mut line)?;
            if bytes == 0 {
                self.reader = None;
                break self.ordered.last();
            }
            seen(bytes);
            self.lines += 1;
            let text = text_of(&line);
            match read(&text) {
                Some((at, value)) => self.late += u64::from(self.ordered.push(at, value)),
                None if text.is_empty() => (),
                None => {
                    self.unreadable += 1;
                    let shown = || text.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
                    let number = self.lines;
                    self.first.get_or_insert_with(|| (number, shown()));
                }
            }
        };
        let (at, value) = next.unzip();
        self.next = value;
        Ok(at)
    }

    /// Returns the first line that cannot be read, with its spot.
    pub(super) fn first_unreadable(&self) -> Option<String> {
        self.first.as_ref().map(|(line, text)| format!("{}:{line}: {text}", self.name))
    }

    pub(super) fn report(&self) -> Value {
        json!({
            "log": self.name,
            "lines": self.lines,
            "unreadable": self.unreadable,
            "late": self.late,
            "first_unreadable": self.first_unreadable(),
        })
    }
}

fn text_of(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(line.trim_ascii_end())
}

/// Hands out the values of all logs in the order of their times, in whatever order the logs are.
/// `seen` is told of the bytes of each line.
pub(super) fn merge<T>(
    logs: &mut [LogSource<T>],
    read: ReadLine<'_, T>,
    seen: &mut dyn FnMut(usize),
    then: &mut dyn FnMut(Duration, T),
) -> Result<(), String> {
    // Values of one time come in the order of the names.
    logs.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some(pair) = logs.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(format!("the log {} is given twice", pair[0].name));
    }
    let mut next = BinaryHeap::with_capacity(logs.len());
    for (index, log) in logs.iter_mut().enumerate() {
        next.push(Reverse((log.begin(read)?, index)));
    }
    let (mut reached, mut begun) = (Duration::ZERO, vec![false; logs.len()]);
    while let Some(Reverse((at, index))) = next.pop() {
        let log = &mut logs[index];
        if !std::mem::replace(&mut begun[index], true) && log.reader.is_none() {
            log.open()?;
        }
        if let Some(value) = log.next.take() {
            // A line from before the begin of its file.
            log.late += u64::from(at < reached);
            reached = reached.max(at);
            then(reached, value);
        }
        if let Some(at) = log.advance(read, seen)? {
            next.push(Reverse((at, index)));
        }
    }
    Ok(())
}
