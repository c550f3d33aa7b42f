//! Errors that come from a limit of the machine or of the shell, whoever ran into it.

use crate::failure::{Class, Failure};

/// The code of all of them.
pub(crate) const CODE: &str = "machine_limit";

/// The text of the system for each limit, with a hint. The numbers are Linux error numbers.
const LIMITS: [(&str, &str); 4] = [
    (
        "(os error 12)",
        "raise or remove the limit (`ulimit -v unlimited`), or free memory: the system gives the \
             process no more memory or addresses; the connector is not the cause (each connector \
             reserves some GiB of addresses that use no memory)",
    ),
    (
        "(os error 23)",
        "close some files, or raise fs.file-max: all processes of the machine together have too \
             many open files",
    ),
    (
        "(os error 24)",
        "raise the limit of open files (`ulimit -n 1024`, LimitNOFILE= of systemd), or lower \
             resources.parallelism",
    ),
    (
        "(os error 27)",
        "raise or remove the limit of file sizes (`ulimit -f unlimited`, LimitFSIZE= of \
             systemd), or split the files",
    ),
];

/// Gives a failure the code `machine_limit` if a limit of the machine caused it.
pub(crate) fn name_limit(failure: &mut Failure) {
    let found = LIMITS
        .iter()
        .find(|(said, _)| failure.message.contains(said));
    let Some((said, hint)) = found else { return };
    failure.class = Class::Environment;
    failure.code = CODE.into();
    failure.hint = Some((*hint).into());
    if let Some(rest) = failure.message.strip_prefix("stopped: ") {
        failure.message = rest.into();
    }
    // A retry does not help: the file stays too large, and the limit of addresses stays.
    if matches!(*said, "(os error 12)" | "(os error 27)") {
        failure.passes_after_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_machine_is_no_fault_of_a_connector() {
        for (message, word) in [
            ("stopped: Cannot allocate memory (os error 12)", "ulimit -v"),
            ("out/a.csv: Too many open files (os error 24)", "ulimit -n"),
            ("out/a.csv: File too large (os error 27)", "ulimit -f"),
        ] {
            let mut failure = Failure::new(Class::Run, "trapped", message)
                .hint("report it to the connector's author: the connector has a bug");
            failure.passes_after_ms = Some(0);
            name_limit(&mut failure);
            assert_eq!(failure.code, "machine_limit", "{message}");
            assert_eq!(failure.exit_code(), 3, "{message}");
            let hint = failure.hint.unwrap_or_default();
            assert!(hint.contains(word) && !hint.contains("author"), "{hint}");
            assert!(
                !failure.message.starts_with("stopped"),
                "{}",
                failure.message
            );
        }
        let mut failure = Failure::new(Class::Run, "trapped", "stopped: unreachable");
        name_limit(&mut failure);
        assert_eq!(failure.code, "trapped");
    }
}
