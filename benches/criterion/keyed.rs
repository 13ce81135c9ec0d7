//! 1,000 keys that every thread walks. A result is the time of one thread's decision, the others at it too.

use std::hash::{BuildHasher, RandomState};

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use foldhash::fast::RandomState as FoldHash;
use tollgate::RateLimiter;
use tollgate_benches::contenders::{Pinned, RwLockMap};
use tollgate_benches::{KeyedLimiter, Path, timing};

fn keyed(criterion: &mut Criterion) {
    with_hasher::<RandomState>(criterion, "SipHash");
    with_hasher::<FoldHash>(criterion, "foldhash");
}

fn with_hasher<S: BuildHasher + Default + Send + Sync + 'static>(criterion: &mut Criterion, hasher: &str) {
    for path in Path::ALL {
        for threads in [1, 2] {
            bench::<RateLimiter<u64, S>>(criterion, hasher, path, threads);
            bench::<Pinned<S>>(criterion, hasher, path, threads);
            bench::<RwLockMap<S>>(criterion, hasher, path, threads);
        }
    }
}

fn bench<L: KeyedLimiter + 'static>(criterion: &mut Criterion, hasher: &str, path: Path, threads: usize) {
    let time = timing::in_proportion(timing::keyed::<L>(path, threads));
    criterion
        .benchmark_group(format!("keyed, {hasher}, {}, threads: {threads}", path.name()))
        .sampling_mode(SamplingMode::Flat)
        .bench_function(L::NAME, |bencher| bencher.iter_custom(&time));
}

criterion_group!(benches, keyed);
criterion_main!(benches);
