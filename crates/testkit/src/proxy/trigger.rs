//! The moment of a fault.

use super::link::{Event, Link};
use super::{Fault, When};

/// A fault that has not happened.
#[derive(Debug)]
pub(super) struct Armed {
    fault: Fault,
    passed: u64,
    /// Connections, by [`Link::id`], on which a client sends the bytes that are looked for.
    watched: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    id: u64,
    /// The last of what came, which may be the beginning of what is looked for.
    tail: Vec<u8>,
    is_found: bool,
    passed: u64,
}

impl Armed {
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            passed: 0,
            watched: Vec::new(),
        }
    }

    /// The fault, when this is its moment.
    pub fn fires(&mut self, link: &Link, event: Event<'_>) -> Option<Fault> {
        let is_now = match (self.fault.when, event) {
            (When::Connected, Event::Connected) => true,
            (When::Passed(wanted, bytes), Event::Passed(way, passed)) if way == wanted => {
                self.passed += passed as u64;
                self.passed >= bytes
            }
            (When::Before(word), Event::Coming(piece)) => self.of(link).finds(word, piece),
            (When::After(word, ..), Event::Coming(piece)) => {
                self.of(link).finds(word, piece);
                false
            }
            (When::After(_, wanted, bytes), Event::Passed(way, passed)) if way == wanted => {
                self.of(link).has_passed(passed, bytes)
            }
            _ => false,
        };
        is_now.then_some(self.fault)
    }

    fn of(&mut self, link: &Link) -> &mut Watched {
        let at = self.watched.iter().position(|one| one.id == link.id);
        let at = at.unwrap_or_else(|| {
            self.watched.push(Watched {
                id: link.id,
                tail: Vec::new(),
                is_found: false,
                passed: 0,
            });
            self.watched.len() - 1
        });
        &mut self.watched[at]
    }
}

impl Watched {
    fn finds(&mut self, word: &str, piece: &[u8]) -> bool {
        if !self.is_found {
            self.tail.extend_from_slice(piece);
            let word = word.as_bytes();
            self.is_found = self.tail.windows(word.len()).any(|bytes| bytes == word);
            let kept = self.tail.len().saturating_sub(word.len().saturating_sub(1));
            self.tail.drain(..kept);
        }
        self.is_found
    }

    /// Of what passes behind the piece with the word, so much is enough.
    fn has_passed(&mut self, passed: usize, enough: u64) -> bool {
        if self.is_found {
            self.passed += passed as u64;
        }
        self.is_found && self.passed >= enough
    }
}
