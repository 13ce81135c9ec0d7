//! The service of README.md, as two processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tollgate_test_servers::any::Engine;
use tollgate_testing::wire::Connection;

use crate::Failure;
use crate::programs::{CLOSED, example};

/// A process of the service.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(redis: &str) -> Result<Service, Failure> {
        let mut command = example("service");
        command.arg("127.0.0.1:0").env("REDIS_URL", redis).stdout(Stdio::piped());
        let mut service = Service { process: command.spawn()?, address: String::new() };
        let mut line = String::new();
        BufReader::new(service.process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        service.address = line.trim().strip_prefix("listening on http://").ok_or(line.clone())?.to_owned();
        Ok(service)
    }

    /// Asks over HTTP. Returns the status.
    fn get(&self) -> u16 {
        Connection::connect(&*self.address).get("/").status
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The service refuses by 503 while the server does not answer, so each 200 is a token of the one
/// bucket.
#[test]
fn two_processes_of_a_service_hold_one_limit() -> Result<(), Failure> {
    let alone = Service::start(CLOSED)?;
    assert_eq!(alone.get(), 503);
    let Some(server) = Engine::Redis.start()? else { return Ok(()) };
    let services = [Service::start(&server.url())?, Service::start(&server.url())?];
    let (begun, mut granted, mut refused) = (Instant::now(), [0_u32; 2], [0_u32; 2]);
    while refused.contains(&0) {
        for (which, service) in services.iter().enumerate() {
            match service.get() {
                200 => granted[which] += 1,
                429 => refused[which] += 1,
                status => println!("{status}"),
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{granted:?} granted, {refused:?} refused");
    }
    let (all, seconds) = (granted.iter().sum::<u32>(), begun.elapsed().as_secs_f64());
    println!("{granted:?} granted, {refused:?} refused, in {seconds:.3} s");
    // The burst, the rate, and a token's rounding. Each process may hold a token that is unused.
    assert!(f64::from(all) <= 5.0 + 5.0 * seconds + 1.0, "{all} in {seconds} s");
    assert!(all >= 3, "{all} in {seconds} s");
    Ok(())
}
