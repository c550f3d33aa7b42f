//! Misdeeds that never return or that kill the component, in any call of a connector. The test kit's
//! hostile source and destination share them.

use std::hint::black_box;
use std::time::Duration;

/// One misdeed. None of them returns but [`Deed::Sleep`], after an hour.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Computes for ever.
    Loop,
    /// Sleeps for an hour.
    Sleep,
    /// Panics with the message "misbehave: a panic on purpose".
    Panic,
    /// Panics with a message of 100 MB.
    HugePanic,
    /// Runs into an `unreachable` instruction without a message.
    Trap,
    /// Ends the process, as a C library does that has lost its way.
    Abort,
    /// Allocates and touches memory until there is none.
    Memory,
    /// Calls itself until the stack is used up.
    Stack,
}

/// Of what is huge.
pub const HUNDRED_MB: usize = 100_000_000;

impl Deed {
    /// Does it.
    pub fn act(self) {
        match self {
            Self::Loop => spin(),
            Self::Sleep => std::thread::sleep(Duration::from_secs(3600)),
            Self::Panic => panic!("misbehave: a panic on purpose"),
            Self::HugePanic => panic!("{}", "p".repeat(HUNDRED_MB)),
            Self::Trap => trap(),
            Self::Abort => std::process::abort(),
            Self::Memory => hoard(),
            Self::Stack => {
                black_box(descend(0));
            }
        }
    }
}

fn spin() -> ! {
    let mut n = 0u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

#[cfg(target_family = "wasm")]
fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_family = "wasm"))]
fn trap() -> ! {
    std::process::abort()
}

fn hoard() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1u8; 1 << 20]));
    }
}

/// Never ends: the depth is hidden from the compiler, and the sum keeps it from becoming a loop.
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    if black_box(false) {
        return depth;
    }
    descend(depth + 1) + frame[31]
}

#[cfg(test)]
mod tests {
    use super::Deed;

    #[test]
    #[should_panic = "misbehave: a panic on purpose"]
    fn panics() {
        Deed::Panic.act();
    }
}
