//! Stages the rows of a stream where its target is, as a run would write them, so that both are digested by one server.

use std::borrow::Cow;
use std::sync::Mutex;

use rapidbyte_runtime::Destination;

use super::sides::{Origin, Sides};
use super::way::{Way, is_there, refuse_missing, staged_target};
use crate::document::Verify;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::narrow::Narrowing;
use crate::plan::{Prepared, StreamPlan};

impl<'a> Sides<'a> {
    /// Both sides of a stream. Its rows are staged if the source does not digest them.
    pub(super) fn new(
        prepared: &'a Prepared,
        stream: &'a StreamPlan,
        host: &'a Host,
    ) -> Result<Self, Failure> {
        let plan = &prepared.plan;
        let way = Way::of(plan, stream)?;
        refuse_missing(stream)?;
        let selection = stream.selection(plan.full_refresh);
        if !way.is_staged {
            let stream = Cow::Borrowed(stream);
            return Self::of(prepared, stream, host, (selection, None), &way);
        }
        let (staged, session) = stage(prepared, stream, host)?;
        let mut sides = Self::of(prepared, Cow::Owned(staged), host, (selection, None), &way)?;
        sides.origin = Origin::Staged(Box::new(Mutex::new(session)));
        Ok(sides)
    }
}

/// Reads the stream and stages its rows. Gives the plan that they were read with, and the session that has them.
fn stage(
    prepared: &Prepared,
    stream: &StreamPlan,
    host: &Host,
) -> Result<(StreamPlan, Destination), Failure> {
    let mut staging = alone(prepared, &stream.name, host)?;
    let planned = &mut staging.plan.streams[0];
    planned.target = staged_target(&planned.target);
    planned.keys = None;
    let progress = crate::run::progress(&staging.plan);
    crate::run::run_on(&mut staging, host, &progress, None, None, |_| {})?;
    let session = staging.sessions.take_writer().ok_or_else(|| {
        let text = "the session that staged the rows is gone";
        Failure::new(Class::Run, "internal", text).in_stream(&stream.name)
    })?;
    // The run has the columns of all records.
    let mut read = staging.plan.streams.swap_remove(0);
    read.target.stages = false;
    Ok((read, session))
}

/// Plans a run of one stream, whose target exists, beside the comparison that `prepared` is for.
pub(super) fn alone(prepared: &Prepared, stream: &str, host: &Host) -> Result<Prepared, Failure> {
    let mut document = prepared.plan.document.clone();
    document.verify = Verify::Off;
    let narrowing = Narrowing {
        select: vec![stream.to_owned()],
        ..Narrowing::default()
    };
    let prepared = Prepared::narrowed(document, host, &narrowing)?;
    if let Some(refused) = prepared.plan.refused.first() {
        return Err(refused.failure.clone());
    }
    let [planned] = prepared.plan.streams.as_slice() else {
        let text = format!("--select {stream:?} names several streams");
        return Err(Failure::new(Class::Run, "internal", text));
    };
    is_there(planned)?;
    Ok(prepared)
}
