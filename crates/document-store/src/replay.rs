//! Replays of rejects: a load that removes the rejects that it replays.
//!
//! One document for each pipeline and collection of rejects says which replay may commit. A replay that begins takes it
//! over, and in the same change writes down the replay that it overtakes. It then deletes the rows of every replay that was
//! overtaken: one that died, and one that still writes. The commit is one change of this document, which names the rejects
//! to remove; any later replay can repeat the removal.

use std::collections::BTreeMap;

use rapidbyte_sdk::prelude::*;

use crate::ids::{IdRange, RowId, Tag};
use crate::reach;
use crate::rejects::Place;
use crate::store::{Store, delete_uncommitted};

/// Replays that begin at the same moment: all but one of them try again.
const MAX_TRIES: usize = 10;
/// Replays whose rows may still be there. A replay that 32 later ones overtook does not write any more.
pub const MAX_OVERTAKEN: usize = 32;

/// The error for a reject that is not as it was read.
pub(crate) fn missing(why: &str) -> Error {
    let text =
        format!("{why} replayed, changed or deleted before, and this replay changed nothing");
    Error::data("reject_missing", text).hint(
        "list the rejects again with `rapidbyte rejects show PIPELINE`, and replay those that are still there",
    )
}

/// The rejects of a pipeline in one collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayKey {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The collection of the rejects.
    pub to: String,
}

/// The document that says which replay may commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay {
    /// The replay that may commit.
    pub holder: Option<Tag>,
    /// The collection that the holder writes to.
    pub collection: Option<String>,
    /// The ids of the rejects that a committed replay removes.
    pub removing: Vec<Vec<u8>>,
    /// Replays that never commit, oldest first, and the collections that they write to.
    pub overtaken: Vec<(Tag, String)>,
    /// Another one after each change, if the server counts versions; otherwise empty.
    pub version: String,
}

/// A change of the document.
#[derive(Debug, Clone, Copy)]
pub enum ReplayChange<'a> {
    /// A replay that writes to this collection takes the right to commit over.
    Take(Tag, &'a str),
    /// The holder commits: these rejects are to be removed.
    Commit(&'a [Vec<u8>]),
    /// The holder gives the right up: it never commits.
    GiveUp,
}

impl Replay {
    /// The document after a change.
    #[must_use]
    pub fn changed(&self, change: &ReplayChange<'_>) -> Self {
        let mut next = self.clone();
        let held = next.holder.take().zip(next.collection.take());
        match change {
            ReplayChange::Take(tag, collection) => {
                next.holder = Some(*tag);
                next.collection = Some((*collection).to_owned());
                next.overtaken.extend(held);
            }
            ReplayChange::Commit(removing) => next.removing = removing.to_vec(),
            ReplayChange::GiveUp => next.overtaken.extend(held),
        }
        let forgotten = next.overtaken.len().saturating_sub(MAX_OVERTAKEN);
        next.overtaken.drain(..forgotten);
        next
    }
}

/// The right of a load to replay rejects.
#[derive(Debug, Clone)]
pub struct Claim {
    key: ReplayKey,
    /// As this replay has left the document.
    held: Replay,
    /// Starts the ids of the rows of this replay.
    pub tag: Tag,
    places: Vec<Place>,
    /// A commit was sent, and its outcome is unknown: then nothing of it may be undone.
    pub is_unsettled: bool,
}

impl Claim {
    /// Takes the right to replay these rejects. `None` for a load that replays nothing. Errors: `reject_missing`,
    /// `replay_too_large`, `fence_contended`.
    pub(crate) fn take<S: Store>(
        store: &mut S,
        target: &Target,
        pipeline: &str,
        collection: &str,
    ) -> Result<Option<Self>> {
        let rejects = target.rejects.as_ref();
        let Some(rejects) = rejects.filter(|one| !one.replayed.is_empty()) else {
            return Ok(None);
        };
        if rejects.replayed.len() > S::MAX_REPLAYED {
            let text = format!(
                "{} rejects, and a replay into this database has {} at most",
                rejects.replayed.len(),
                S::MAX_REPLAYED
            );
            return Err(
                Error::config("replay_too_large", text).hint("replay fewer rejects in one replay")
            );
        }
        let places = rejects
            .replayed
            .iter()
            .map(|(place, _)| Place::parse(place));
        let places = places.collect::<Result<Vec<_>>>()?;
        let key = ReplayKey {
            pipeline: pipeline.to_owned(),
            to: rejects.to.clone(),
        };
        let tag = Tag::random()?;
        let held = hold(store, &key, tag, collection)?;
        reach::<S>("replay_held")?;
        // A replay that was committed, and died before it had removed its rejects.
        if !held.removing.is_empty() {
            store.delete_rejects(&key, &held.removing)?;
        }
        let mut ranges: BTreeMap<&str, Vec<IdRange>> = BTreeMap::new();
        for (tag, of) in &held.overtaken {
            for of in [of, &key.to] {
                let range = (RowId::first(*tag, 0), RowId::first(*tag, 1));
                ranges.entry(of).or_default().push(range);
            }
        }
        for (of, ranges) in ranges {
            delete_uncommitted(store, of, &ranges)?;
        }
        reach::<S>("replay_claimed")?;
        let claim = Self {
            key,
            held,
            tag,
            places,
            is_unsettled: false,
        };
        let versions = rejects.replayed.iter().map(|(_, version)| version.as_str());
        let versions: Vec<(&Place, &str)> = claim.places.iter().zip(versions).collect();
        let same = store.count_unchanged(&claim.key, &target.stream, &versions)?;
        match same == claim.places.len() {
            true => Ok(Some(claim)),
            false => Err(claim.missing(same)),
        }
    }

    /// The first parts of the places of the rejects.
    pub(crate) fn firsts(&self) -> Vec<Vec<u8>> {
        self.places
            .iter()
            .map(|place| place.first.clone())
            .collect()
    }

    fn missing(&self, held: usize) -> Error {
        let to = &self.key.to;
        missing(&match self.places.len() {
            1 => format!("the reject is not in {to} any more: it was"),
            all => {
                format!("{held} of the {all} rejects to replay are still in {to}: the others were")
            }
        })
    }

    /// Commits the replay, and removes its rejects. Errors: `reject_missing` if another replay took the right.
    pub(crate) fn commit<S: Store>(&mut self, store: &mut S) -> Result<()> {
        reach::<S>("replay_committing")?;
        let removing: Vec<Vec<u8>> = self.places.iter().map(|place| place.id.clone()).collect();
        self.is_unsettled = true;
        let change = ReplayChange::Commit(&removing);
        match store.change_replay(&self.key, &self.held, &change) {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.is_unsettled = false;
                return Err(self.missing(0));
            }
            Err(error) if S::was_refused(&error) => {
                self.is_unsettled = false;
                return Err(error);
            }
            Err(error) => self.settle(store, &removing, error)?,
        }
        self.is_unsettled = false;
        reach::<S>("replay_committed")?;
        store.delete_rejects(&self.key, &removing)
    }

    /// After a commit without an answer: `Ok` if it happened. If it did not, it never will, because this call gives the
    /// right up.
    fn settle<S: Store>(
        &mut self,
        store: &mut S,
        removing: &[Vec<u8>],
        error: Error,
    ) -> Result<()> {
        store.reconnect()?;
        let given_up = store.change_replay(&self.key, &self.held, &ReplayChange::GiveUp)?;
        if given_up.is_some() {
            self.is_unsettled = false;
            return Err(error);
        }
        let found = store.replay(&self.key)?;
        match found.is_some_and(|found| found.removing == removing) {
            true => Ok(()),
            false => Err(error),
        }
    }
}

/// Takes the document over. Returns it, with the replay that was overtaken. Errors: `fence_contended`.
fn hold<S: Store>(store: &mut S, key: &ReplayKey, tag: Tag, collection: &str) -> Result<Replay> {
    for _ in 0..MAX_TRIES {
        let older = store.replay(key)?.unwrap_or_default();
        let change = ReplayChange::Take(tag, collection);
        if let Some(held) = store.change_replay(key, &older, &change)? {
            return Ok(held);
        }
    }
    let text = format!("{MAX_TRIES} other replays have begun at the same moment");
    Err(Error::new(ErrorKind::Transient, "fence_contended", text)
        .hint("let one replay end before the next begins"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tag(number: u8) -> Tag {
        Tag::from_bytes(&[number; 8]).unwrap()
    }

    #[test]
    fn a_replay_that_is_overtaken_is_written_down_and_one_that_commits_is_not() {
        let one = Replay::default().changed(&ReplayChange::Take(tag(1), "a"));
        assert_eq!((one.holder, one.overtaken.len()), (Some(tag(1)), 0));
        let two = one.changed(&ReplayChange::Take(tag(2), "b"));
        assert_eq!(two.overtaken, [(tag(1), "a".to_owned())]);
        let ids = [vec![7]];
        let committed = two.changed(&ReplayChange::Commit(&ids));
        assert_eq!((committed.holder, &committed.collection), (None, &None));
        assert_eq!(committed.removing, ids);
        assert_eq!(committed.overtaken, two.overtaken);
        let given_up = two.changed(&ReplayChange::GiveUp);
        assert_eq!(given_up.overtaken[1], (tag(2), "b".to_owned()));
        assert!(given_up.removing.is_empty() && given_up.holder.is_none());
        let mut many = two;
        for number in 3..=100 {
            many = many.changed(&ReplayChange::Take(tag(number), "c"));
        }
        assert_eq!(many.overtaken.len(), MAX_OVERTAKEN);
        assert_eq!(many.overtaken[31].0, tag(99));
    }
}
