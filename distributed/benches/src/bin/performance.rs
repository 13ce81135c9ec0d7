//! Measures everything, and writes the CSV files of `docs/distributed-performance`.
//!
//! ```text
//! cargo run --release --manifest-path distributed/benches/Cargo.toml --bin performance
//! cargo run --release --manifest-path distributed/benches/Cargo.toml --bin performance -- --quick
//! scripts/plot    # the plots of the CSV files
//! ```
//!
//! A quick run takes four minutes and writes to `distributed/benches/target/quick`. With
//! `--only PART` one part is measured anew, and the others are those of the CSV files.

use std::fs;
use std::path::Path;

use tollgate_benches::rows::Rows;
use tollgate_distributed_benches::limit::Failure;
use tollgate_distributed_benches::report;
use tollgate_distributed_benches::scenarios::{Effort, at_hand, attempts, outage, stores};
use tollgate_distributed_benches::servers::Server;
use tollgate_distributed_benches::simulation;

/// The parts, in the order of the page.
const PARTS: [&str; 8] =
    ["Redis", "PostgreSQL", "MariaDB", "SQLite", "outage", "at-hand", "attempts", "simulation"];

struct Options {
    is_quick: bool,
    only: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { is_quick: false, only: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.is_quick = true,
            "--only" => match args.next() {
                Some(part) if PARTS.contains(&part.as_str()) => options.only.push(part),
                part => return Err(format!("--only needs one of {PARTS:?}, not {part:?}")),
            },
            _ => return Err(format!("{arg} is none of --quick, --only PART")),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate_folder.join(if options.is_quick {
        "target/quick"
    } else {
        "../../docs/distributed-performance"
    });
    fs::create_dir_all(&folder)?;
    for part in PARTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == part) {
            let rows = measure(part, options.is_quick)?;
            report::replace(&folder, part, rows)?;
        }
    }
    println!("{}: scripts/plot draws, and scripts/tables prints a part", folder.display());
    Ok(())
}

fn measure(part: &str, is_quick: bool) -> Result<Rows, Failure> {
    let effort = if is_quick { Effort::QUICK } else { Effort::FULL };
    if part == "simulation" {
        return Ok(simulation::measure(is_quick)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match part {
            "outage" => outage::measure().await,
            "at-hand" => at_hand::measure(&effort).await,
            "attempts" => attempts::measure(&effort).await,
            store => match Server::start(store)? {
                Some(mut server) => stores::measure(&effort, store, &mut server).await,
                None => Ok(Rows::default()),
            },
        }
    })
}
