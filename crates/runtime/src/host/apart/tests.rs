use std::sync::Arc;

use super::*;
use crate::{Cancel, Clock, Grants, Limits, MemoryBudget, Sandbox};

fn state(cancel: &Cancel, stall: Duration) -> State {
    let sandbox = Sandbox {
        grants: Arc::new(Grants::none()),
        memory: MemoryBudget::new(1 << 20),
        limits: Limits {
            stall,
            ..Limits::default()
        },
        clock: Clock::new(),
        cancel: cancel.clone(),
        log: Arc::new(|_, _, _, _| {}),
        redact: crate::no_secrets(),
        stream: None,
    };
    State::new("test".into(), sandbox)
}

const LONG: Duration = Duration::from_secs(600);

/// A call that ends when the other end of the channel is dropped, and says so.
fn hanging() -> (
    Sender<()>,
    Receiver<bool>,
    impl FnOnce(&Abandoned) + Send + 'static,
) {
    let (hold, held) = bounded::<()>(0);
    let (say, said) = bounded(1);
    let call = move |abandoned: &Abandoned| {
        let _ = held.recv();
        let _ = say.send(abandoned.check().is_err());
    };
    (hold, said, call)
}

#[test]
fn a_call_that_hangs_is_left_when_the_run_is_cancelled() {
    let cancel = Cancel::new();
    let mut state = state(&cancel, LONG);
    let (hold, said, call) = hanging();
    let (begun, has_begun) = bounded(1);
    let stopper = cancel.clone();
    let stop = std::thread::spawn(move || {
        has_begun.recv().expect("it begins");
        stopper.cancel();
    });
    let hangs = move |abandoned: &Abandoned| {
        begun.send(()).expect("somebody waits");
        call(abandoned);
    };
    let error = state.apart("out/a.csv", hangs).expect_err("cancelled");
    assert!(error.is::<Cancelled>(), "{error:?}");
    stop.join().expect("it ends");
    drop(hold);
    assert!(
        said.recv().expect("it ends"),
        "it may change nothing any more"
    );
}

#[test]
fn a_call_that_hangs_is_left_when_nothing_moves_and_the_next_has_a_thread() {
    let mut state = state(&Cancel::new(), Duration::from_millis(100));
    let (hold, said, call) = hanging();
    let error = state.apart("out/a.csv", call).expect_err("stalled");
    assert!(error.is::<Stalled>(), "{error:?}");
    assert_eq!(state.waits_for.as_deref(), Some("out/a.csv"));
    state.progress();
    assert_eq!(state.apart("out/b.csv", |_| 7).expect("another thread"), 7);
    // Another thread drops the rest of the state, and a thread that hangs does not delay the caller.
    drop(state);
    drop(hold);
    assert!(said.recv().expect("it ends"));
}

#[test]
fn a_call_that_panics_ends_its_guest_alone() {
    let mut state = state(&Cancel::new(), LONG);
    let error = state
        .apart("a", |_| panic!("on purpose"))
        .expect_err("a panic");
    assert!(error.is::<std::io::Error>(), "{error:?}");
    assert_eq!(state.apart("b", |_| 7).expect("another thread"), 7);
}
