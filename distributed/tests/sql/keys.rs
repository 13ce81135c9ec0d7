//! Keys of a limiter in a store.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, Store};

/// Returns the form in which a limiter stores a key that is too long.
fn digest(key: &[u8]) -> Vec<u8> {
    let digits = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}").into_bytes()
}

/// No key shares the bucket of another one: neither one that is stored as a digest, nor a short one
/// that looks like a digest, nor one with other bytes that a text might ignore.
pub(crate) async fn each_key_has_its_own_bucket(store: impl Store) {
    let builder = DistributedLimiter::<Vec<u8>, _>::builder(Quota::per_hour(2), store).name("keys");
    let limiter = builder.exact().deadline(Duration::from_secs(10)).build().unwrap();
    // With the name, the first is the longest key that is stored as it is.
    let long = [vec![b'x'; 250], vec![b'x'; 251], vec![0xff; 255], vec![b'y'; 100_000]];
    let once: Vec<_> = long.iter().map(|key| digest(key)).collect();
    let twice = once.iter().map(|key| digest(key));
    let short = ["", "a", "a ", "a\0", "A", ":", ":a", "sha256", "sha256:", "sha256: ", "SHA256:"];
    let short = short.map(|key| key.as_bytes().to_vec());
    let keys: Vec<_> = long.iter().cloned().chain(twice).chain(once.iter().cloned()).chain(short).collect();
    for key in &keys {
        for left in [1, 0] {
            let granted = limiter.ask(key).await.unwrap_or_else(|_| panic!("\"{}\"", key.escape_ascii()));
            assert_eq!(granted.remaining(), left, "\"{}\"", key.escape_ascii());
        }
    }
    for key in &keys {
        assert!(limiter.ask(key).await.is_err(), "\"{}\"", key.escape_ascii());
    }
}
