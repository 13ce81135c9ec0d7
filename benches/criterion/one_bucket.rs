//! One bucket that every thread takes from. A result is the time of one thread's decision, the others at it too.

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use tollgate::TokenBucket;
use tollgate_benches::contenders::MutexBucket;
use tollgate_benches::{Limiter, Path, timing};

fn one_bucket(criterion: &mut Criterion) {
    for path in Path::ALL {
        for threads in [1, 2] {
            bench::<TokenBucket>(criterion, path, threads);
            bench::<MutexBucket>(criterion, path, threads);
        }
    }
}

fn bench<L: Limiter + 'static>(criterion: &mut Criterion, path: Path, threads: usize) {
    let time = timing::in_proportion(timing::one_bucket::<L>(path, threads));
    criterion
        .benchmark_group(format!("one bucket, {}, threads: {threads}", path.name()))
        .sampling_mode(SamplingMode::Flat)
        .bench_function(L::NAME, |bencher| bencher.iter_custom(&time));
}

criterion_group!(benches, one_bucket);
criterion_main!(benches);
