//! `drive TARGET SECONDS [SEED]` runs a target on random bytes, without a fuzzer; `drive TARGET FILE` runs it on the
//! bytes of a file.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use icefield_torture::rng::Rng;

/// The maximum length of an input.
const LONGEST: usize = 600;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, what, seed @ ..] = arguments.as_slice() else {
        eprintln!("usage: drive TARGET SECONDS [SEED] | drive TARGET FILE");
        icefield_fuzz::targets().for_each(|target| eprintln!("  {target}"));
        return ExitCode::from(2);
    };
    let Ok(seconds) = what.parse() else {
        let data = std::fs::read(what).expect("a file with an input");
        return report(target, &data);
    };
    let seed = seed.first().map_or(Ok(1), |seed| seed.parse()).expect("a number");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0;
    while Instant::now() < end {
        let mut rng = Rng::fork(seed, runs);
        let data: Vec<u8> = (0..rng.index(LONGEST)).map(|_| byte(target, &mut rng)).collect();
        if report(target, &data) != ExitCode::SUCCESS {
            let file = format!("{target}-{seed}-{runs}.input");
            std::fs::write(&file, &data).expect("room for the input");
            eprintln!("the input is in {file}; `drive {target} {file}` runs it again");
            return ExitCode::from(1);
        }
        runs += 1;
    }
    println!("{target}: {runs} runs in {seconds} s, nothing found");
    ExitCode::SUCCESS
}

/// Returns a random byte. For targets that read rows, it is usually a character with a meaning in CSV or NDJSON.
fn byte(target: &str, rng: &mut Rng) -> u8 {
    if target.ends_with("rows") && !rng.one_in(4) {
        return *rng.pick(b"{}[]\":,;\n\r\t\\0123456789.e-abu ");
    }
    rng.word() as u8
}

fn report(target: &str, data: &[u8]) -> ExitCode {
    match icefield_fuzz::try_run(target, data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{target}: {failure}");
            ExitCode::from(1)
        }
    }
}
