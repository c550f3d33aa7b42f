//! Ends the server and removes its folder when the test's process dies without doing so.
//!
//! A shell waits for the end of its standard input, a pipe whose other end only we hold: however
//! we end, killed or through the exit of a process with a `static` server, the pipe closes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The shell's script: `$1` is the server's process, `$2` the folder.
const SCRIPT: &str = r#"
read -r _
kill -QUIT "$1" 2>/dev/null
tries=0
while kill -0 "$1" 2>/dev/null && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -KILL "$1" 2>/dev/null
rm -rf "$2"
"#;

/// Watches one server process; dropping it calls the watch off.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches over process `pid` with its `folder`. The process must stay unreaped by us for as
    /// long, so that its id is not given to another.
    pub fn start(pid: u32, folder: &Path) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", SCRIPT, "watchdog", &pid.to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C in the terminal is for the tests; the shell has work to do after it.
            .process_group(0)
            .spawn()
            .map(Self)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It has not begun its work, because its pipe is still open.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
