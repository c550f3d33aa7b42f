//! A plan together with the sessions that made it. Both connectors are loaded and open, the streams are found, and the
//! types are compared.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rapidbyte_runtime::{Destination, Phase, Selection, Source, Spec};

use super::choose::{Chosen, narrow, refuse_unknown_streams, select};
use super::moment::{Moment, take_readable};
use super::names::refuse_taken;
use super::open::{
    Clocks, Opened, Reading, Transforming, Writing, common_forms, open_all, open_source,
};
use super::place::{place, refuse_own_source, refuse_shared_targets};
use super::planned::{Plan, StreamPlan, Taken};
use super::readable::readable;
use super::refused::{Refused, is_of_stream, refused_all};
use super::support::check_modes;
use super::{deletes, privileges};
use crate::document::{self, Document};
use crate::failure::Failure;
use crate::host::Host;
use crate::narrow::Narrowing;
use crate::retry::{until_it_passes, wait};
use crate::verify::refuse_after_run;

/// Pauses before further attempts to plan with new sessions: a server may still be ending those that were closed, whose
/// places the new ones need.
const AFTER_CLOSING: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(100),
    Duration::from_millis(250),
];

/// A plan that can run at once, because the sessions that made it are still open.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// The time of planning, by phase.
    pub clocks: Clocks,
    /// The snapshot of the run, if the source took it while the destination planned.
    pub(super) taken: Option<Result<String, Failure>>,
    /// The sessions of both sides.
    pub(crate) sessions: Held,
}

/// The sessions that made the plan. The stages of a run share them.
pub(crate) struct Held {
    /// The source's session. It stays open for the whole run, because it holds the snapshot. `None` once it reads the
    /// only stream itself.
    coordinator: Mutex<Option<Source>>,
    /// The destination's session. `None` once it writes a stream.
    writer: Mutex<Option<Destination>>,
}

impl Prepared {
    /// Fixes the moment of the run. Transient failures are retried as `retry` says, in a new session.
    ///
    /// # Errors
    /// A failure that stops the whole run. Refused streams are not errors: they are in [`Taken`].
    pub fn take_moment(&mut self, host: &Host) -> Result<Taken, Failure> {
        let mut first = self.taken.take();
        until_it_passes(&self.plan.document, host, |attempt| {
            if attempt > 1 {
                // Close the older session first: its role may have only one connection.
                drop(self.sessions.take_coordinator());
                let (_, session) = open_source(&self.plan.document, host, &self.clocks.source)?;
                self.sessions.replace_coordinator(session);
            }
            self.ask_for_moment(first.take())
        })
    }

    /// The same without a second attempt.
    pub(super) fn take_moment_once(&mut self) -> Result<Taken, Failure> {
        let first = self.taken.take();
        self.ask_for_moment(first)
    }

    /// `first` is an answer that is there already, of the streams that fit at least.
    fn ask_for_moment(&self, first: Option<Result<String, Failure>>) -> Result<Taken, Failure> {
        let Plan {
            document, streams, ..
        } = &self.plan;
        let unfit = streams.iter().map(StreamPlan::unfit).enumerate();
        let (unfit, well): (Vec<_>, Vec<_>) = unfit.partition(|(_, failure)| failure.is_some());
        let unfit = unfit.into_iter();
        let unfit = unfit.filter_map(|(index, failure)| Some((index, failure?)));
        let well: Vec<usize> = well.into_iter().map(|(index, _)| index).collect();
        let names: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
        let mut ask = |wanted: &[usize]| {
            let selection = |index: &usize| streams[*index].selection(self.plan.full_refresh);
            let selections: Vec<Selection> = wanted.iter().map(selection).collect();
            let sessions = &self.sessions;
            let taken = sessions.with_coordinator(|source| source.snapshot(&selections));
            let taken = taken.unwrap_or_else(|| Ok(String::new()));
            taken.map_err(|e| Failure::from_runtime(e, document, "source"))
        };
        let mut taken = take_readable(&names, well, first, &mut ask)?;
        taken.refused.extend(unfit);
        taken.refused.sort_by_key(|(index, _)| *index);
        Ok(taken)
    }
}

impl Prepared {
    /// Loads and opens both connectors, and plans with them.
    pub fn new(document: Document, host: &Host) -> Result<Self, Failure> {
        Self::narrowed(document, host, &Narrowing::default())
    }

    /// Plans a part of the streams and columns of the pipeline. Retries transient errors as the key `retry` says.
    pub fn narrowed(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
    ) -> Result<Self, Failure> {
        Self::planned(document, host, narrowing, |_, _| Ok(()))
    }

    /// Plans with retries. `begin` gets the destination's session before the source takes its snapshot.
    pub(crate) fn planned(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
        begin: impl Fn(&Document, &mut Destination) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        narrowing.check(&document)?;
        let _counted = host.usage.of_thread();
        let clocks = Clocks::new();
        let once = |attempt| {
            let opened = open_all(&document, host, &clocks, false);
            // This also counts the time between two attempts.
            clocks.source.enter(Phase::Other);
            clocks.destination.enter(Phase::ChannelWait);
            let clocks = clocks.clone();
            let prepared = Self::settled(document.clone(), opened?, clocks, narrowing, &begin)?;
            let passes = |refused: &&Refused| refused.failure.passes_after_ms.is_some();
            match prepared.plan.refused.iter().find(passes) {
                // After the last attempt the run moves the other streams.
                Some(passing) if attempt < document.retry.max_attempts => {
                    Err(passing.failure.clone())
                }
                _ => Ok(prepared),
            }
        };
        until_it_passes(&document, host, |attempt| match once(attempt) {
            Err(failure) if host.is_reuse_to_blame(&failure) => {
                let mut planned = once(attempt);
                for pause in AFTER_CLOSING {
                    let passes = |failure: &Failure| failure.passes_after_ms.is_some();
                    if !planned.as_ref().err().is_some_and(passes) || !wait(pause, &host.cancel) {
                        break;
                    }
                    planned = once(attempt);
                }
                planned
            }
            planned => planned,
        })
    }

    /// Plans between two open sides. `begin` gets the destination's session before the source takes its snapshot.
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
        let mut transforming = opened.transforming;
        let Writing {
            stage: destination,
            session: mut writer,
            ..
        } = opened.writing;
        let others = transforming.iter().flatten().map(|one| &one.stage.spec);
        let forms = common_forms(&source.spec, others.chain([&destination.spec]));
        check_modes(&document, &destination, narrowing.full_refresh)?;
        deletes::refuse(
            &document,
            (&source.spec, source.connector.name()),
            (&destination.spec, destination.connector.name()),
            narrowing.limit,
        )?;
        clocks.source.enter(Phase::ChannelWait);
        clocks.destination.enter(Phase::Other);
        let selected = select(&document, &source.spec, found?, &mut coordinator, &forms)?;
        refuse_unknown_streams(&document, &selected, [&source.schema, &destination.schema])?;
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
            let compares = document.deletes_of(asked).is_some();
            // Where keys are compared, the snapshot must not be older than the progress of the destination.
            asked.sync_mode == document::SyncMode::FullRefresh && !compares
        });
        let mut moment = Moment {
            source: &mut coordinator,
            cancel: &cancel,
            clock: &clocks.source,
            usage: &opened.usage,
            selections: asked,
        };
        let place_all = || {
            let stages = (&mut transforming, &mut writer);
            place_all(
                &document,
                &source.spec,
                chosen,
                stages,
                narrowing.full_refresh,
            )
        };
        let (placing, taken) = match is_whole && !finds_none {
            true => {
                let (placing, taken) = match opened.is_short {
                    true => moment.fix_after(&document, place_all)?,
                    false => moment.fix_beside(&document, place_all)?,
                };
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
            // The operator should have to ask an administrator only once, so the source lists its missing privileges,
            // too.
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
        refuse_taken(&document, &destination.spec, &found, &streams, &mut writer)?;
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
            forms,
            limit: narrowing.limit,
            full_refresh: narrowing.full_refresh,
            commits_at_checkpoints: false,
        };
        refuse_after_run(&plan)?;
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
    /// The destination's session, for the stream that is written first: it has logged in, and its server has the
    /// catalog cached.
    pub(crate) fn take_writer(&self) -> Option<Destination> {
        lock(&self.writer).take()
    }

    /// The source's session, which holds the snapshot.
    pub(crate) fn take_coordinator(&self) -> Option<Source> {
        lock(&self.coordinator).take()
    }

    /// Whether other sessions can still read in the snapshot.
    pub(crate) fn has_coordinator(&self) -> bool {
        lock(&self.coordinator).is_some()
    }

    /// Calls `work` with the session that holds the snapshot. `None` if a stage has taken the session.
    pub(crate) fn with_coordinator<T>(&self, work: impl FnOnce(&mut Source) -> T) -> Option<T> {
        lock(&self.coordinator).as_mut().map(work)
    }

    /// Calls `work` with the destination's session. `None` if a stage has taken the session.
    pub(crate) fn with_writer<T>(&self, work: impl FnOnce(&mut Destination) -> T) -> Option<T> {
        lock(&self.writer).as_mut().map(work)
    }

    /// Gives the destination a new session.
    pub(crate) fn replace_writer(&self, session: Destination) {
        *lock(&self.writer) = Some(session);
    }

    /// Replaces the session that holds the snapshot.
    pub(crate) fn replace_coordinator(&self, session: Source) {
        *lock(&self.coordinator) = Some(session);
    }
}

fn lock<T>(session: &Mutex<T>) -> MutexGuard<'_, T> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The selections of a snapshot for streams that are all full refreshes.
fn selections(document: &Document, chosen: &[Chosen]) -> Vec<Selection> {
    let selection = |one: &Chosen| Selection {
        stream: one.discovered.name.clone(),
        columns: one.columns.clone(),
        filter: document.source.streams[one.entry].filter.clone(),
        query: document.source.streams[one.entry].query.clone(),
        increment: None,
        cursor: None,
    };
    chosen.iter().map(selection).collect()
}

/// The destination's answers for all streams.
struct Placing {
    streams: Vec<StreamPlan>,
    refused: Vec<Refused>,
}

/// Lets the transforms and the destination plan each stream. If one of them refuses a stream, they plan the other
/// streams too, so that the operator sees all faults at once.
///
/// # Errors
/// A failure that does not belong to a stream: the server is unreachable, the connector is broken, or the command is
/// interrupted.
fn place_all(
    document: &Document,
    source: &Spec,
    chosen: Vec<Chosen>,
    (transforming, writer): (&mut Vec<Vec<Transforming>>, &mut Destination),
    full_refresh: bool,
) -> Result<Placing, Failure> {
    let (mut streams, mut refused) = (Vec::new(), Vec::new());
    for one in chosen {
        let stream = one.discovered.name.clone();
        let others = transforming.iter_mut().enumerate();
        let others = others.filter(|(entry, _)| *entry != one.entry);
        others.flat_map(|(_, of)| of).for_each(Transforming::close);
        let transforms = &mut transforming[one.entry];
        match place(document, source, one, transforms, writer, full_refresh) {
            Ok(planned) => streams.push(planned),
            Err(failure) if !writer.is_usable() || !is_of_stream(&failure) => return Err(failure),
            Err(failure) => refused.push(Refused { stream, failure }),
        }
    }
    Ok(Placing { streams, refused })
}
