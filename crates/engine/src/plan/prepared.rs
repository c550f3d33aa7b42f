//! A plan with the sessions that made it: connectors loaded and opened, streams found, types compared.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rapidbyte_runtime::{Destination, Phase, Selection, Source};

use super::choose::{Chosen, narrow, readable, refuse_unknown_streams, select};
use super::moment::Moment;
use super::open::{Clocks, Opened, Reading, Writing, open_both};
use super::refused::Refused;
use super::{
    Plan, StreamPlan, check_modes, is_of_stream, place, privileges, refuse_own_source,
    refuse_shared_targets, refused_all,
};
use crate::document::{self, Document};
use crate::failure::Failure;
use crate::host::Host;
use crate::narrow::Narrowing;
use crate::overlap::refuse_remote;
use crate::retry::until_it_passes;

/// A plan that can be run at once: the sessions that made it are still open.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// Where the time of planning went.
    pub clocks: Clocks,
    /// The moment of the run, if the source fixed it while the destination planned.
    pub(super) taken: Option<Result<String, Failure>>,
    /// The sessions of both sides.
    pub(crate) sessions: Held,
}

/// The sessions that planned. The stages of a run share them.
pub(crate) struct Held {
    /// Kept open for the whole run, because it holds the snapshot. None once it reads the only stream itself.
    coordinator: Mutex<Option<Source>>,
    /// None once a stream is written by it.
    writer: Mutex<Option<Destination>>,
}

impl Prepared {
    /// Loads, opens and asks both connectors.
    pub fn new(document: Document, host: &Host) -> Result<Self, Failure> {
        Self::narrowed(document, host, &Narrowing::default())
    }

    /// The same for a part of what the pipeline moves. What fails for a reason that may pass is begun
    /// again, as `retry` says.
    pub fn narrowed(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
    ) -> Result<Self, Failure> {
        Self::planned(document, host, narrowing, |_, _| Ok(()))
    }

    /// The same for a run. Refused while the destination says that another run of the pipeline is at work:
    /// before the source fixes its moment. A run that `has_died` does not count.
    pub(crate) fn alone(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
        has_died: &dyn Fn(&str) -> bool,
    ) -> Result<Self, Failure> {
        Self::planned(document, host, narrowing, |document, destination| {
            refuse_remote(document, destination, has_died)
        })
    }

    /// `begin` has the destination's session before the source fixes its moment.
    fn planned(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
        begin: impl Fn(&Document, &mut Destination) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        narrowing.check(&document)?;
        let clocks = Clocks::new();
        until_it_passes(&document, host, |attempt| {
            let opened = open_both(&document, host, &clocks, false);
            // Also the time between two attempts.
            clocks.source.enter(Phase::Other);
            clocks.destination.enter(Phase::ChannelWait);
            let clocks = clocks.clone();
            let prepared = Self::settled(document.clone(), opened?, clocks, narrowing, &begin)?;
            let passes = |refused: &&Refused| refused.failure.passes_after_ms.is_some();
            match prepared.plan.refused.iter().find(passes) {
                // With the last attempt the other streams are moved.
                Some(passing) if attempt < document.retry.max_attempts => {
                    Err(passing.failure.clone())
                }
                _ => Ok(prepared),
            }
        })
    }

    /// Settles what is moved between two sides that are open; `begin` has the destination's session first.
    pub(super) fn settled(
        document: Document,
        opened: Opened,
        clocks: Clocks,
        narrowing: &Narrowing,
        begin: impl Fn(&Document, &mut Destination) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let Reading {
            stage: source,
            session: mut coordinator,
            cancel,
            found,
            ..
        } = opened.reading;
        let Writing {
            stage: destination,
            session: mut writer,
            ..
        } = opened.writing;
        check_modes(&document, &destination, narrowing.full_refresh)?;
        clocks.source.enter(Phase::ChannelWait);
        clocks.destination.enter(Phase::Other);
        let selected = select(&document, &source.spec, found?, &mut coordinator)?;
        refuse_unknown_streams(&document, &selected, [&source.spec, &destination.spec])?;
        let found = selected.names();
        let (chosen, mut refused) = narrow(&document, selected, narrowing)?;
        let asked_for = chosen.len() + refused.len();
        let (chosen, unreadable) =
            readable(&document, chosen, |one| &one.discovered, &mut coordinator)?;
        refused.extend(unreadable);
        let finds_none = chosen.is_empty();
        begin(&document, &mut writer)?;
        let asked = selections(&document, &chosen);
        let is_whole = chosen.iter().all(|one| {
            let asked = &document.source.streams[one.entry];
            asked.sync_mode == document::SyncMode::FullRefresh
        });
        let mut moment = Moment {
            source: &mut coordinator,
            cancel: &cancel,
            clock: &clocks.source,
            selections: asked,
        };
        let place_all = || place_all(&document, chosen, &mut writer, narrowing.full_refresh);
        let (placing, taken) = match is_whole && !finds_none {
            true => {
                let (placing, taken) = moment.fix_beside(&document, place_all)?;
                (placing, Some(taken))
            }
            false => (place_all()?, None),
        };
        let Placing {
            streams,
            refused: by_destination,
        } = placing;
        refused.extend(by_destination);
        if streams.is_empty() && !refused.is_empty() {
            // The operator asks an administrator once: the source says what it lacks, too.
            if refused
                .iter()
                .any(|one| privileges::is_missing(&one.failure))
            {
                let taken = taken.unwrap_or_else(|| moment.take(&document));
                let missing = taken.err().filter(privileges::is_missing);
                refused.extend(missing.map(|failure| Refused {
                    stream: failure.stream.clone().unwrap_or_default(),
                    failure,
                }));
            }
            return Err(refused_all(
                refused,
                asked_for,
                destination.connector.name(),
            ));
        }
        refuse_shared_targets(&document, &streams)?;
        refuse_own_source(&document, &source.grants, &destination.grants, &streams)?;
        clocks.source.enter(Phase::Other);
        clocks.destination.enter(Phase::ChannelWait);
        let plan = Plan {
            document,
            source,
            destination,
            streams,
            refused,
            found,
            limit: narrowing.limit,
            full_refresh: narrowing.full_refresh,
        };
        let sessions = Held {
            coordinator: Mutex::new(Some(coordinator)),
            writer: Mutex::new(Some(writer)),
        };
        Ok(Self {
            plan,
            clocks,
            taken,
            sessions,
        })
    }
}

impl Held {
    /// The session that planned, for whichever stream is written first: it has logged in, and its server knows the
    /// catalog.
    pub(crate) fn take_writer(&self) -> Option<Destination> {
        lock(&self.writer).take()
    }

    /// The session that holds the snapshot.
    pub(crate) fn take_coordinator(&self) -> Option<Source> {
        lock(&self.coordinator).take()
    }

    /// Whether the snapshot can still be joined.
    pub(crate) fn has_coordinator(&self) -> bool {
        lock(&self.coordinator).is_some()
    }

    /// Calls `work` with the session that holds the snapshot. None if there is none.
    pub(crate) fn with_coordinator<T>(&self, work: impl FnOnce(&mut Source) -> T) -> Option<T> {
        lock(&self.coordinator).as_mut().map(work)
    }

    /// Calls `work` with the session that planned. None once a stream is written by it.
    pub(crate) fn with_writer<T>(&self, work: impl FnOnce(&mut Destination) -> T) -> Option<T> {
        lock(&self.writer).as_mut().map(work)
    }

    /// Takes the place of the session that holds the snapshot.
    pub(super) fn replace_coordinator(&self, session: Source) {
        *lock(&self.coordinator) = Some(session);
    }
}

fn lock<T>(session: &Mutex<T>) -> MutexGuard<'_, T> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The streams as they are read whole: what the source is asked for where all of them are.
fn selections(document: &Document, chosen: &[Chosen]) -> Vec<Selection> {
    let selection = |one: &Chosen| Selection {
        stream: one.discovered.name.clone(),
        columns: one.columns.clone(),
        filter: document.source.streams[one.entry].filter.clone(),
        increment: None,
        cursor: None,
    };
    chosen.iter().map(selection).collect()
}

/// The answers of the destination for all streams.
struct Placing {
    streams: Vec<StreamPlan>,
    refused: Vec<Refused>,
}

/// Has the destination plan each stream. A stream that the destination refuses does not end this, so that the operator
/// learns of all faults at once.
///
/// # Errors
/// A failure that no stream causes: the server is away, the connector is broken, or the command is interrupted.
fn place_all(
    document: &Document,
    chosen: Vec<Chosen>,
    writer: &mut Destination,
    full_refresh: bool,
) -> Result<Placing, Failure> {
    let (mut streams, mut refused) = (Vec::new(), Vec::new());
    for one in chosen {
        let stream = one.discovered.name.clone();
        match place(document, one, writer, full_refresh) {
            Ok(planned) => streams.push(planned),
            Err(failure) if !writer.is_usable() || !is_of_stream(&failure) => return Err(failure),
            Err(failure) => refused.push(Refused { stream, failure }),
        }
    }
    Ok(Placing { streams, refused })
}
