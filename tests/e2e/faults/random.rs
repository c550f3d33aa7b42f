//! Killed at moments that nobody chose.

use std::time::Duration;

use rapidbyte_testkit::numbers::Numbers;

use super::number;
use super::scenario::SCENARIOS;
use crate::wired::Bench;

/// Rounds of a run of all tests; `cargo xtask faults --random N` sets another number.
const ROUNDS: u64 = 3;
const KILLS: usize = 3;

#[test]
fn three_kills_at_random_moments_and_then_all_is_well() {
    let rounds = number("RAPIDBYTE_FAULTS_ROUNDS").unwrap_or(ROUNDS);
    let mut numbers = Numbers::new(number("RAPIDBYTE_FAULTS_SEED").unwrap_or(1));
    let mut bench = Bench::new();
    let mut killed = 0;
    for round in 0..rounds {
        let scenario = &SCENARIOS[round as usize % SCENARIOS.len()];
        let mut run = bench.begin(scenario);
        let mut done = false;
        for _ in 0..KILLS {
            let mut child = run.start("");
            // The moment is the fault: no matter what the program does by then.
            std::thread::sleep(Duration::from_millis(numbers.below(300) as u64));
            child.kill().expect("killed");
            let ended = child.wait().expect("it ends").success();
            killed += usize::from(!ended);
            // Between the last word in the history and its end a process can be killed, too.
            done |= ended || run.newest_is_done();
            if scenario.adds && done {
                break;
            }
        }
        if !(scenario.adds && done) {
            run.goes_well();
        }
        run.is_right(&format!("{}, round {round}", scenario.name));
    }
    println!("faults: {rounds} rounds, {killed} kills");
}
