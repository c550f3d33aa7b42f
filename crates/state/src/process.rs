//! Names this process and checks whether others have ended, for runs that meet only at a destination.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// This process as [`place`] and [`name`] give it, with its number: a process that `fork` made is another one.
static KNOWN: Mutex<Option<(u32, String, String)>> = Mutex::new(None);

/// Where this process works, for people: such as "process 4711 on db-7". As it was when it was asked first.
pub fn place() -> String {
    known().0
}

/// Names this process: no other one has the name, on any machine.
pub fn name() -> String {
    known().1
}

/// Each run asks, and the system takes longer to answer than a short run takes for its rows.
fn known() -> (String, String) {
    let pid = std::process::id();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, place, name)) = known.as_ref().filter(|(of, ..)| *of == pid) {
        return (place.clone(), name.clone());
    }
    let (place, name) = (format!("process {pid} on {}", host()), named(pid));
    *known = Some((pid, place.clone(), name.clone()));
    (place, name)
}

fn named(pid: u32) -> String {
    let begun = status(pid).map(|(_, begun)| begun);
    match (machine(), begun) {
        (Some(machine), Some(begun)) => format!("{machine} {pid} {begun}"),
        _ => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            format!("{} {pid} {}", host(), now.unwrap_or_default().as_nanos())
        }
    }
}

/// The process of this name was one of this machine, and has ended. False where that is not known.
pub fn has_ended(name: &str) -> bool {
    let of_here = machine().and_then(|machine| name.strip_prefix(&machine)?.strip_prefix(' '));
    let parts = of_here.and_then(|rest| rest.split_once(' '));
    let Some((Ok(pid), begun)) = parts.map(|(pid, begun)| (pid.parse::<u32>(), begun)) else {
        return false;
    };
    let Some(known) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    if test_kill_process(known) == Err(Errno::SRCH) {
        return true;
    }
    // The files of other users' processes may be hidden: then the process counts as alive.
    status(pid).is_some_and(|(state, found)| matches!(state, 'Z' | 'X') || found != begun)
}

/// Names the running system and its processes' numbers: containers of one machine may each have a
/// process of the same number. None where the system does not tell; these files are Linux's.
fn machine() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let numbers = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), numbers.display()))
}

/// The state of a process, and when it began, in ticks since the machine did.
fn status(pid: u32) -> Option<(char, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses, and may contain parentheses itself. The state is field 3, the start time is field 22.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.to_owned()))
}

/// This machine's name.
pub(crate) fn host() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| {
        let asked = Command::new("hostname").output()?;
        String::from_utf8(asked.stdout).map_err(std::io::Error::other)
    });
    told.map_or_else(|_| "this machine".into(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_machine_is_known_to_have_ended() {
        let own = name();
        assert!(!has_ended(&own));
        let (rest, begun) = own.rsplit_once(' ').unwrap();
        // Its number was given to this process.
        assert_eq!(has_ended(&format!("{rest} {begun}0")), machine().is_some());
        for other in [format!("x{own}"), rest.to_owned(), String::new()] {
            assert!(!has_ended(&other), "{other}");
        }
    }
}
