//! Which process has ended. A program of its own: between fork and exec a child holds the locks of other tests.
#![cfg(target_os = "linux")]

use std::process::Command;

use rapidbyte_state::process;

/// The name of this process, with the number and the begin of another one.
fn name_of(pid: u32) -> String {
    let own = process::name();
    let machine = own.rsplitn(3, ' ').nth(2).expect("a machine").to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, fields) = stat.rsplit_once(") ").expect("fields");
    let begun = fields.split(' ').nth(19).expect("a time");
    format!("{machine} {pid} {begun}")
}

#[test]
fn a_killed_process_has_ended_before_anybody_waits_for_it() {
    assert_eq!(name_of(std::process::id()), process::name());
    let mut child = Command::new("sleep").arg("3600").spawn().expect("a child");
    let name = name_of(child.id());
    assert!(!process::has_ended(&name));
    child.kill().expect("killed");
    while !process::has_ended(&name) {
        std::thread::yield_now();
    }
    child.wait().expect("its end");
    assert!(process::has_ended(&name));
}
