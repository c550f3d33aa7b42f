//! Compares the streams of a plan, one after the other.

use std::collections::BTreeSet;

use super::compared::{Compared, Verified};
use super::repair::{self, Repair};
use super::sides::{Sides, reopen, sampled};
use crate::document::Share;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::Prepared;
use crate::retry::retried;

/// Compares the rows of all streams of a plan with the rows of their targets. Changes nothing unless it repairs.
/// `compared` gets each result as it is known.
///
/// # Errors
/// A failure that stops the whole comparison. A stream that cannot be compared is in [`Verified::failures`].
pub fn verify(
    prepared: &mut Prepared,
    host: &Host,
    sample: Share,
    repair: Repair,
    mut compared: impl FnMut(&Compared),
) -> Result<Verified, Failure> {
    let _counted = host.usage.of_thread();
    let plan = &prepared.plan;
    let mut verified = Verified {
        pipeline: plan.document.pipeline.clone(),
        source: plan.source.connector.name().to_owned(),
        destination: plan.destination.connector.name().to_owned(),
        ..Verified::default()
    };
    let taken = prepared.take_moment(host)?;
    verified.failures.extend(
        prepared
            .plan
            .all_refused(&taken)
            .into_iter()
            .map(|one| one.failure),
    );
    let refused: BTreeSet<usize> = taken.refused.iter().map(|(index, _)| *index).collect();
    let prepared = &*prepared;
    let streams = prepared.plan.streams.iter().enumerate();
    for (_, stream) in streams.filter(|(index, _)| !refused.contains(index)) {
        let within = sampled(sample);
        if repair == Repair::Rows
            && let Err(failure) = repair::refuse(&prepared.plan, stream)
        {
            verified.failures.push(failure);
            continue;
        }
        let kept = "the comparison begins again";
        let answer = retried(&prepared.plan.document, host, kept, |attempt| {
            if attempt > 1 {
                reopen(prepared, host, true)?;
            }
            let sides = Sides::new(prepared, stream, host)?;
            match repair {
                Repair::Nothing => sides.compare(within.as_ref()),
                Repair::Rows => sides.repair(within.as_ref()),
            }
        });
        match answer {
            Ok(one) => {
                compared(&one);
                verified.streams.push(one);
            }
            Err(failure) if failure.stops_run || failure.class == Class::Cancelled => {
                return Err(failure);
            }
            Err(failure) => verified.failures.push(failure),
        }
    }
    Ok(verified)
}
