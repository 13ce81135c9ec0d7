//! Every contender by itself on one thread: its speed, and the change since the last time.

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use tollgate_benches::keys::Popularity;
use tollgate_benches::timing::BATCH;
use tollgate_benches::{Contender, Path, Setup, contenders};

fn micro(criterion: &mut Criterion) {
    for path in [Path::Granted, Path::Refused] {
        let group = format!("one bucket, {}", path.name());
        bench(criterion, &group, path, &contenders::one_bucket(), &[()], &[(); BATCH]);
        let (group, all) = (format!("1,000 keys, {}", path.name()), Vec::from_iter(0..1_000));
        let keys = Popularity::Uniform.draw(1_000, 0);
        bench(criterion, &group, path, &contenders::keyed(), &all, &keys[..BATCH]);
    }
}

fn bench<K>(
    criterion: &mut Criterion,
    group: &str,
    path: Path,
    contenders: &[Contender<K>],
    all: &[K],
    keys: &[K],
) {
    let mut group = criterion.benchmark_group(group);
    group.sampling_mode(SamplingMode::Flat);
    // A contender that does not limit is not timed.
    for contender in contenders.iter().filter(|contender| contender.breaks.is_none()) {
        // A table that is full up to four fifths has room for each key. In one for 1,000 keys, two
        // of them shared a bucket in one of 50 runs.
        let limiter = (contender.make)(Setup { quota: path.quota(), keys: all.len() * 5 / 4 });
        assert_eq!(limiter.count_granted(all), all.len() as u64, "a bucket starts full");
        group.bench_function(contender.name, |bencher| {
            bencher.iter_custom(|decisions| {
                // The time of fewer decisions is their part of a batch's.
                let batches = decisions.div_ceil(BATCH as u64);
                let start = Instant::now();
                let granted: u64 = (0..batches).map(|_| limiter.count_granted(keys)).sum();
                let elapsed: Duration = start.elapsed();
                assert!(path.was_kept(batches * BATCH as u64, granted), "{granted} granted");
                elapsed.mul_f64(decisions as f64 / (batches * BATCH as u64) as f64)
            });
        });
    }
}

criterion_group!(benches, micro);
criterion_main!(benches);
