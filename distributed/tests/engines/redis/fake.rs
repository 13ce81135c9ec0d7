//! A server that answers each call of a script, and each `CLUSTER SLOTS`, with bytes that the test
//! chooses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_distributed::StoreErrorKind::{self, Permanent, Refused, Unknown};
use tollgate_distributed::{Amount, Op, RedisStore, Store, redis_fuzzing};

use super::engine::{ONE, ask, counted, per_second};

const NOW: u64 = 1_800_000_000_000_000;
const LIMIT: Duration = Duration::from_millis(300);

type Answers = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// Starts a server that gives each answer once. Returns its port.
async fn start(answers: Answers) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&answers)));
        }
    });
    port
}

async fn serve(mut stream: TcpStream, answers: Answers) {
    let mut bytes = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut bytes).await {
        while let Some((command, rest)) = command_of(&bytes) {
            let answer = match command.starts_with(b"EVALSHA") || command.starts_with(b"CLUSTER") {
                true => answers.lock().unwrap().pop_front().unwrap_or_default(),
                false => b"+OK\r\n".to_vec(),
            };
            if stream.write_all(&answer).await.is_err() || answer.is_empty() {
                return;
            }
            bytes = rest;
        }
    }
}

/// Returns the first word of a complete command, and the bytes after the command.
fn command_of(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let line = |bytes: &[u8]| -> Option<(usize, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        Some((std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()?, end + 2))
    };
    let (words, mut at) = line(bytes)?;
    let mut first = None;
    for _ in 0..words {
        let (length, head) = line(bytes.get(at..)?)?;
        let word = bytes.get(at + head..at + head + length + 2)?;
        first.get_or_insert_with(|| word.to_vec());
        at += head + length + 2;
    }
    Some((first?, bytes[at..].to_vec()))
}

fn list(numbers: &[i64]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", numbers.len()).into_bytes();
    numbers.iter().for_each(|number| bytes.extend(format!(":{number}\r\n").into_bytes()));
    bytes
}

fn sound() -> Vec<u8> {
    list(&[1, 4 * counted(5).per_token() as i64, NOW as i64])
}

/// Each answer, and the effect that the store reports for it.
fn lies() -> Vec<(Vec<u8>, StoreErrorKind)> {
    let (level, now) = (4 * counted(5).per_token() as i64, NOW as i64);
    let mut lies = Vec::new();
    for numbers in [
        &[][..],
        &[1, level],
        &[1, level, now, 1],
        &[2, level, now],
        &[-1, level, now],
        &[i64::MAX, level, now],
        &[1, level * 2, now],
        &[1, i64::MIN, now],
        &[1, level, -1],
        &[1, level, 0],
        &[1, level, i64::MAX],
    ] {
        lies.push((list(numbers), Unknown));
    }
    for text in [
        "*-1\r\n",
        "$-1\r\n",
        "_\r\n",
        ":1\r\n",
        "+OK\r\n",
        "$3\r\nabc\r\n",
        "*3\r\n$1\r\n1\r\n:1\r\n:1\r\n",
        "*3\r\n,1.5\r\n:1\r\n:1\r\n",
        "*3\r\n*1\r\n:1\r\n:1\r\n:1\r\n",
        "*3\r\n:99999999999999999999\r\n:1\r\n:1\r\n",
        "%1\r\n:1\r\n:1\r\n",
        "*3\r\n-ERR in a list\r\n:1\r\n:1\r\n",
        "*999999999\r\n",
        "*3\r\n:1\r\n",
        "$-7\r\n",
        "\0\0\0",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "",
    ] {
        lies.push((text.as_bytes().to_vec(), Unknown));
    }
    lies.push((b"*1\r\n".repeat(100_000), Unknown));
    lies
}

/// Each error of a server, and the effect of the call.
const ERRORS: [(&str, StoreErrorKind); 27] = [
    ("LOADING Redis is loading the dataset in memory", Refused),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Refused),
    ("CLUSTERDOWN Hash slot not served", Refused),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Refused),
    ("OOM command not allowed when used memory > 'maxmemory'.", Refused),
    ("MISCONF Redis is configured to save RDB snapshots", Refused),
    ("BUSY Redis is busy running a script.", Refused),
    ("NOREPLICAS Not enough good replicas to write.", Refused),
    ("READONLY You can't write against a read only replica.", Refused),
    ("MOVED 1 127.0.0.1:1", Refused),
    ("ASK 1 127.0.0.1:1", Refused),
    ("ERR max number of clients reached", Refused),
    ("NOAUTH Authentication required.", Permanent),
    ("NOPERM this user has no permissions to run the 'evalsha' command", Permanent),
    ("WRONGPASS invalid username-password pair or user is disabled.", Permanent),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", Permanent),
    ("DENIED Redis is running in protected mode", Permanent),
    ("BADSTATE 1", Permanent),
    ("BADSTATE 99", Permanent),
    ("BADSTATE", Permanent),
    ("ERR unknown command 'EVALSHA', with args beginning with: ", Permanent),
    ("ERR Error compiling script (new function): user_script:1: '=' expected", Permanent),
    // A server before 7.0 wraps the error of a command in a script.
    ("ERR Error running script (call to f_0): @user_script:9: @user_script: 9: -READONLY You can't", Refused),
    ("ERR Error running script (call to f_0): @user_script:9: @user_script: 9: -NOPERM no", Permanent),
    ("ERR upstream failure", Unknown),
    ("WHATEVER it is", Unknown),
    ("", Unknown),
];

fn impatient_of(url: &str) -> RedisStore {
    RedisStore::builder().response_timeout(LIMIT).connect_timeout(LIMIT).lazy(url).unwrap()
}

fn impatient(port: u16) -> RedisStore {
    impatient_of(&format!("redis://127.0.0.1:{port}"))
}

#[tokio::test]
async fn each_lie_is_an_error_and_the_next_call_is_answered() {
    let answers = Answers::default();
    let store = impatient(start(Arc::clone(&answers)).await);
    let errors = ERRORS.map(|(text, kind)| (format!("-{text}\r\n").into_bytes(), kind));
    for (lie, kind) in lies().into_iter().chain(errors) {
        let shown = String::from_utf8_lossy(&lie[..lie.len().min(80)]).into_owned();
        answers.lock().unwrap().extend([lie, sound()]);
        let begin = Instant::now();
        let error = ask(&store, "key", counted(5), ONE).await.expect_err(&shown);
        assert_eq!(error.kind(), kind, "{shown:?}: {error}");
        assert!(begin.elapsed() < LIMIT + Duration::from_secs(10), "{shown:?}");
        let answer = ask(&store, "key", counted(5), ONE).await;
        assert_eq!(answer.expect(&shown).now_us, NOW);
    }
}

#[tokio::test]
async fn a_server_that_never_has_the_script_is_asked_four_times() {
    let answers = Answers::default();
    let store = impatient(start(Arc::clone(&answers)).await);
    answers.lock().unwrap().extend(vec![b"-NOSCRIPT No matching script.\r\n".to_vec(); 10]);
    assert_eq!(ask(&store, "key", counted(5), ONE).await.unwrap_err().kind(), Refused);
    assert_eq!(answers.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn the_error_of_a_bad_bucket_names_its_key() {
    let answers = Answers::default();
    let store = impatient(start(Arc::clone(&answers)).await);
    answers.lock().unwrap().push_back(b"-BADSTATE 2\r\n".to_vec());
    let mut ops = [Op::new(b"good", counted(5), ONE), Op::new(b"b\xffd", counted(5), ONE)];
    let error = store.acquire(&mut ops).await.unwrap_err();
    assert!(error.to_string().contains("the key \"b\\xffd\" holds no bucket"), "{error}");
}

/// The answer of a cluster of one node.
const SLOTS: &str = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:PORT\r\n";

#[tokio::test]
async fn a_cluster_that_lies_about_its_slots_is_refused_until_it_does_not() {
    let answers = Answers::default();
    let port = start(Arc::clone(&answers)).await;
    let slots = SLOTS.replace("PORT", &port.to_string());
    for lie in [
        "*-1\r\n".to_owned(),
        "*0\r\n".to_owned(),
        ":1\r\n".to_owned(),
        "*1\r\n*0\r\n".to_owned(),
        slots.replace(":0", ":-1"),
        slots.replace(":0", ":16384"),
        slots.replace(":16383", ":16384"),
        slots.replace(":16383", ":99999999999"),
        slots.replace(&format!(":{port}"), ":65536"),
        slots.replace("$0\r\n\r\n", ":7\r\n"),
        slots.replace("*2", "*1"),
        "*1\r\n".repeat(10_000),
    ] {
        let store = impatient_of(&format!("redis+cluster://127.0.0.1:{port}"));
        answers.lock().unwrap().push_back(lie.clone().into_bytes());
        let error = ask(&store, "key", counted(5), ONE).await.expect_err(&lie);
        assert_eq!(error.kind(), Refused, "{lie:?}: {error}");
        // After some time the store asks again for a map that lacks the slot.
        tokio::time::sleep(LIMIT).await;
        answers.lock().unwrap().extend([slots.clone().into_bytes(), sound()]);
        assert_eq!(ask(&store, "key", counted(5), ONE).await.expect(&lie).now_us, NOW);
        answers.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_cluster_that_sends_a_call_in_a_circle_or_nowhere_is_refused() {
    let answers = Answers::default();
    let port = start(Arc::clone(&answers)).await;
    let slots = SLOTS.replace("PORT", &port.to_string()).into_bytes();
    let circles =
        [format!("MOVED 1 127.0.0.1:{port}"), format!("ASK 1 :{port}"), format!("MOVED 1 ?:{port}")];
    let nonsense = ["MOVED", "MOVED 1", "MOVED 1 a", "MOVED 1 a:b", "ASK 1 127.0.0.1:70000"];
    for redirect in circles.into_iter().chain(nonsense.map(str::to_owned)) {
        let store = impatient_of(&format!("redis+cluster://127.0.0.1:{port}"));
        answers.lock().unwrap().push_back(slots.clone());
        answers.lock().unwrap().extend(vec![format!("-{redirect}\r\n").into_bytes(); 20]);
        let error = ask(&store, "key", counted(5), ONE).await.unwrap_err();
        assert_eq!(error.kind(), Refused, "{redirect}: {error}");
        assert!(answers.lock().unwrap().len() >= 15, "{redirect}: sent more than five times");
        answers.lock().unwrap().clear();
    }
}

/// Random changes of a sound answer are read without a panic. An accepted answer has numbers of a
/// bucket.
#[test]
fn changed_answers_are_refused_or_within_bounds() {
    let spec = per_second(10, 100);
    let amounts = [
        ONE,
        Amount { min: 0, max: i64::MIN, spent: 0, of_us: 0 },
        Amount { min: 3, max: 9, spent: u64::MAX, of_us: 0 },
    ];
    let sound = list(&[1, 5, -201, 50, 9, -7, NOW as i64]);
    let mut taken = 0;
    for seed in 0..20_000_u64 {
        let mut bytes = sound.clone();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for _ in 0..=seed % 3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] =
                if seed % 2 == 0 { b"0123456789-:*$\r\n"[(state >> 8) as usize % 16] } else { state as u8 };
        }
        let mut ops = amounts.map(|amount| Op::new(b"key", spec, amount));
        if redis_fuzzing::read_reply(&bytes, &mut ops).is_ok() {
            taken += 1;
            for op in &ops {
                let most = op.amount.max.max(0);
                assert!(op.answer.granted == op.amount.max || (0..=most).contains(&op.answer.granted));
                assert!(op.answer.credits <= spec.capacity() as i64 && op.answer.now_us > 0);
            }
        }
    }
    assert!((100..19_000).contains(&taken), "{taken}");
}
