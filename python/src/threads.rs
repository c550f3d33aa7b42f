//! Threads that wait for the work of the next call: to begin and to end a thread takes longer than to write a few rows.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

/// How long a thread waits, as long as a session does.
const IDLE: Duration = Duration::from_secs(5);
/// Threads that wait at the same time.
const MAX_WAITING: usize = 8;

/// The work of one call, and what says that it has ended: by then its thread is in the list, so the next call finds it.
type Work = (Box<dyn FnOnce() + Send>, Sender<()>);

/// The threads of the process with this number that wait.
static WAITING: Mutex<(u32, Vec<Waiting>)> = Mutex::new((0, Vec::new()));

struct Waiting {
    thread: ThreadId,
    to: Sender<Work>,
}

/// The list of this process. A process that `fork` made has no thread of its parent.
fn waiting() -> MutexGuard<'static, (u32, Vec<Waiting>)> {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if waiting.0 != process {
        *waiting = (process, Vec::new());
    }
    waiting
}

/// Runs the work on a thread that waits, or on a new one. Drops `end` behind it, also after a panic.
///
/// # Errors
/// The system has no thread left.
pub fn run(work: impl FnOnce() + Send + 'static, end: Sender<()>) -> io::Result<()> {
    let work: Work = (Box::new(work), end);
    // The lock ends with this line.
    let last = waiting().1.pop();
    let work = match last {
        // A thread leaves the list before it ends, so this one waits.
        Some(thread) => match thread.to.send(work) {
            Ok(()) => return Ok(()),
            Err(lost) => lost.into_inner(),
        },
        None => work,
    };
    let (to, works) = bounded(1);
    let thread = std::thread::Builder::new().name("rapidbyte".into());
    thread.spawn(move || serve(work, &to, &works))?;
    Ok(())
}

/// Works until nothing comes for a while. A panic ends the thread, which is in no list meanwhile.
fn serve(first: Work, to: &Sender<Work>, works: &Receiver<Work>) {
    let own = std::thread::current().id();
    let mut next = Some(first);
    while let Some((work, end)) = next.take() {
        work();
        let mut list = waiting();
        if list.1.len() >= MAX_WAITING {
            return;
        }
        list.1.push(Waiting {
            thread: own,
            to: to.clone(),
        });
        drop(list);
        drop(end);
        next = match works.recv_timeout(IDLE) {
            Ok(work) => Some(work),
            Err(RecvTimeoutError::Timeout) if leave(own) => None,
            // Somebody has taken it from the list, and sends.
            Err(_) => works.recv().ok(),
        };
    }
}

/// Takes a thread off the list. False: it is not there.
fn leave(own: ThreadId) -> bool {
    let mut list = waiting();
    let before = list.1.len();
    list.1.retain(|one| one.thread != own);
    list.1.len() < before
}
