//! Errors that come from a limit of the machine or of the shell, whoever ran into it.

/// The code of all of them.
pub(crate) const CODE: &str = "machine_limit";

/// The text of the system for each limit, with a hint. The numbers are Linux error numbers.
pub(crate) const LIMITS: [(&str, &str); 4] = [
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
