//! Tests of files that are damaged, that cannot be read or saved, and that another process has
//! saved.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const PARTS: [(&str, &[u8]); 3] = [("a | 5/s", b"12345678"), ("", b""), ("b", &[0; 40])];

fn put_all(to: &mut Writer) -> io::Result<()> {
    PARTS.iter().try_for_each(|(name, bytes)| to.put(name, bytes))
}

fn names(parts: &[SavedPart]) -> Vec<(&str, &[u8])> {
    parts.iter().map(|part| (&*part.name, &*part.bytes)).collect()
}

fn open(path: &Path) -> (StateFile, Vec<SavedPart>) {
    StateFile::open(path).unwrap_or_else(|why| panic!("{why}"))
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    (folder, path)
}

fn files(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("ASCII"));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// Saves, and expects no other process.
fn save(file: &mut StateFile, parts: impl Fn(&mut Writer) -> io::Result<()>) -> io::Result<()> {
    file.save(parts, |_| panic!("no other process saves"))
}

#[test]
fn a_file_that_is_cut_or_damaged_has_no_part_and_is_kept_aside() {
    let (folder, path) = folder();
    let (mut file, parts) = open(&path);
    assert!(parts.is_empty(), "there is no file");
    save(&mut file, put_all).expect("it is saved");
    assert_eq!(names(&open(&path).1), PARTS);
    let whole = fs::read(&path).expect("it is there");
    for length in 0..whole.len() {
        assert!(parse(&whole[..length]).is_err(), "{length} bytes of it");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(parse(&damaged).is_err(), "byte {at}");
    }
    assert_eq!(
        parse(b"tollgate state 2").err().as_deref(),
        Some("it has version 2, and this program reads version 1")
    );
    // The second one does not replace the first, and there is an end of them.
    for (number, cut) in (1..=MOST_ASIDE).map(|number| (number, &whole[number..])) {
        fs::write(&path, cut).expect("it is written");
        assert!(open(&path).1.is_empty());
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        assert_eq!(fs::read(with_end(&path, &format!(".bad{end}"))).expect("it is kept"), cut);
        assert!(!path.exists());
    }
    fs::write(&path, "no state").expect("it is written");
    let told = StateFile::open(&path).map(|_| ()).unwrap_err();
    assert!(told.contains("9 files .bad are beside"), "{told}");
    assert_eq!(files(&folder).len(), 1 + MOST_ASIDE);
}

/// A check sum that is right says nothing about the lengths.
#[test]
fn lengths_beyond_the_end_are_no_parts() {
    for text in [&[0; 7][..], &[255; 16], &[1, 0, 0, 0, 0, 0, 0, 0, b'a']] {
        let mut bytes = [MAGIC, &[VERSION], text].concat();
        let mut sum = SipHasher13::new();
        sum.write(&bytes);
        bytes.extend(sum.finish().to_le_bytes());
        assert!(parse(&bytes).is_err(), "{text:?}");
    }
}

#[test]
fn a_save_that_fails_leaves_the_former_file_and_nothing_else() {
    let (folder, path) = folder();
    let mut file = open(&path).0;
    save(&mut file, put_all).expect("it is saved");
    let is_full = |to: &mut Writer| to.put("c", b"3").and(Err(ErrorKind::StorageFull.into()));
    assert_eq!(save(&mut file, is_full).map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
    assert_eq!(names(&open(&path).1), PARTS);
    assert_eq!(files(&folder), ["state"]);
    // A folder that takes the name is neither read nor moved.
    fs::remove_file(&path).and_then(|()| fs::create_dir(&path)).expect("a folder");
    let told = save(&mut file, put_all).unwrap_err().to_string();
    assert_eq!((told.as_str(), files(&folder)), ("it is a folder, and no file", vec!["state".to_owned()]));
}

/// A state that is there and cannot be read is as good as one that can.
#[test]
fn a_place_that_can_never_work_is_an_error_and_stays_as_it_is() {
    let (folder, path) = folder();
    let within = |name: &str| folder.path().join(name);
    fs::write(within("file"), "").expect("it is written");
    assert!(std::process::Command::new("mkfifo").arg(within("pipe")).status().expect("it runs").success());
    symlink("missing/state", within("dangling")).expect("a link");
    symlink("loop", within("loop")).expect("a link");
    let rows = [
        (folder.path().to_owned(), "it is a folder, and no file"),
        (within("missing/state"), "missing: No such file or directory"),
        (within("dangling"), "missing: No such file or directory"),
        (within("file/state"), "Not a directory"),
        (within("pipe"), "it is a named pipe, and no file"),
        (within("loop"), "more than 40 links behind each other"),
        ("/dev/null".into(), "it is a device, and no file"),
    ];
    let before = files(&folder);
    for (path, part) in rows {
        let told = StateFile::open(&path).map(|_| ()).unwrap_err();
        assert!(told.contains(part), "{part} in {told}");
        assert_eq!(check(&path), Err(told));
    }
    // Each user may open it, and none may read its begin.
    let told = open(&path).0.read(Path::new("/proc/self/mem")).map(|_| ()).unwrap_err();
    assert_ne!(told.kind(), ErrorKind::NotFound);
    assert_eq!(files(&folder), before);
    assert_eq!(check(&path), Ok(()), "it need not be there");
}

#[test]
fn a_link_is_followed_also_before_its_file_is_there() {
    let (folder, path) = folder();
    fs::create_dir(folder.path().join("volume")).expect("a folder");
    symlink("volume/it", &path).expect("a link");
    let mut file = open(&path).0;
    for _ in 0..2 {
        save(&mut file, put_all).expect("it is saved");
        assert_eq!(fs::read_link(&path).expect("it is a link"), Path::new("volume/it"));
    }
    assert_eq!(
        (names(&open(&path).1), files(&folder)),
        (PARTS.to_vec(), vec!["state".into(), "volume".into()])
    );
}

#[test]
fn files_of_processes_that_ended_in_a_save_are_removed() {
    let (folder, path) = folder();
    let (file, _) = open(&path);
    let living = with_end(&path, &file.new);
    let _writer = file.write(&living, put_all).expect("it is written");
    let digits = "0123456789abcdef";
    for name in [format!("state.new-{digits}"), format!("other.new-{digits}"), "state.new-0123".to_owned()] {
        fs::write(folder.path().join(name), "").expect("it is written");
    }
    open(&path);
    let mut left =
        vec![format!("other.new-{digits}"), "state.new-0123".to_owned(), format!("state{}", file.new)];
    left.sort_unstable();
    assert_eq!(files(&folder), left);
}

/// The first save is under way while the second one is made.
#[test]
fn two_savers_of_one_file_do_not_mix() {
    let (_folder, path) = folder();
    let (mut file, other) = (open(&path).0, RefCell::new(open(&path).0));
    let (is_first, merged) = (Cell::new(true), Cell::new(0));
    let between = |to: &mut Writer| {
        to.put("first", b"1")?;
        if is_first.replace(false) {
            save(&mut other.borrow_mut(), put_all)?;
            assert_eq!(names(&open(&path).1), PARTS);
        }
        to.put("last", b"2")
    };
    let merge = |parts: Vec<SavedPart>| {
        assert_eq!(names(&parts), PARTS);
        merged.set(merged.get() + 1);
    };
    file.save(between, merge).expect("it is saved");
    assert_eq!(names(&open(&path).1), [("first", &b"1"[..]), ("last", b"2")]);
    // The next save of this one finds its own file.
    save(&mut file, put_all).expect("it is saved");
    assert_eq!(merged.get(), 1);
}

/// A file that comes late, of a volume or of another process, is never lost.
#[test]
fn a_file_that_appears_after_the_start_is_merged_or_kept_aside() {
    let with_secret =
        |secret: u8| move |to: &mut Writer| to.put_secret(&[secret; 16]).and_then(|()| put_all(to));
    let (source, of_source) = folder();
    save(&mut open(&of_source).0, with_secret(7)).expect("it is saved");
    let late = fs::read(&of_source).expect("it is saved");
    drop(source);
    for (late, own, end) in [(&late[..], 7, ""), (&late, 8, ".aside"), (b"tollgate state 2", 7, ".bad")] {
        let (folder, path) = folder();
        let (mut file, parts) = open(&path);
        assert!(parts.is_empty() && file.origin().saved.is_none());
        fs::write(&path, late).expect("it is written");
        let merged = Cell::new(0);
        let merge = |parts: Vec<SavedPart>| {
            assert_eq!(names(&parts), PARTS);
            merged.set(merged.get() + 1);
        };
        for _ in 0..2 {
            file.save(with_secret(own), merge).expect("it is saved");
        }
        assert_eq!(merged.get(), usize::from(end.is_empty()), "{end}");
        if end.is_empty() {
            assert_eq!(files(&folder), ["state"]);
        } else {
            assert_eq!(fs::read(with_end(&path, end)).expect("it is kept"), late);
            assert_eq!(files(&folder).len(), 2);
        }
    }
}

#[test]
fn a_state_that_is_not_restored_as_a_whole_is_kept_aside() {
    let (folder, path) = folder();
    save(&mut open(&path).0, put_all).expect("it is saved");
    let before = fs::read(&path).expect("it is saved");
    let (mut file, parts) = open(&path);
    file.restore(parts, |part| if part.name.is_empty() { Err("no room".to_owned()) } else { Ok(()) });
    save(&mut file, |_| Ok(())).expect("it is saved");
    assert_eq!(fs::read(with_end(&path, ".aside")).expect("it is kept"), before);
    let (file, parts) = open(&path);
    file.restore(parts, |_| Ok(()));
    assert_eq!(files(&folder), ["state", "state.aside"]);
}

#[test]
fn the_begin_of_counts_goes_over_restarts() {
    let (_folder, path) = folder();
    let (mut file, _) = open(&path);
    let Origin { began, saved } = file.origin();
    assert_eq!(saved, None);
    file.origin.began = began - 1_000;
    save(&mut file, put_all).expect("it is saved");
    let origin = open(&path).0.origin();
    assert!(origin.began == began - 1_000 && origin.saved.is_some_and(|saved| saved >= began), "{origin:?}");
}

/// No save is between the look at the file and its replacement.
#[test]
fn two_processes_that_save_all_the_time_lose_nothing() {
    let (_folder, path) = folder();
    save(&mut open(&path).0, |_| Ok(())).expect("it is saved");
    let saver = |name: &'static str| {
        let mut file = open(&path).0;
        move || {
            let all = RefCell::new(BTreeSet::new());
            for number in 0..50 {
                all.borrow_mut().insert(format!("{name} {number}"));
                let put = |to: &mut Writer| all.borrow().iter().try_for_each(|item| to.put(item, b""));
                let merge =
                    |parts: Vec<SavedPart>| all.borrow_mut().extend(parts.into_iter().map(|part| part.name));
                file.save(put, merge).expect("it is saved");
            }
        }
    };
    let savers = [saver("a"), saver("b")];
    thread::scope(|scope| savers.into_iter().for_each(|save| _ = scope.spawn(save)));
    assert_eq!(open(&path).1.len(), 100);
}
