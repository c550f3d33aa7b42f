//! Records that do not become rows of the target: the source cannot read them, or the destination does not take them.
//! The destination keeps them. Here they are counted and compared with the limits of the operator.

use rapidbyte_runtime::{Reject, RejectOrigin};
use rapidbyte_wire::counted;

use super::{Pump, Written};
use crate::failure::{Class, Failure};
use crate::report::{RejectReport, Rejected};
use crate::stage::{Stopped, Work};

/// Below this many records the share of rejects says little. At the end of a stream it is compared anyway.
const MIN_RECORDS: u64 = 10_000;

impl Pump<'_> {
    /// Gives rejects of the stages before to the destination.
    pub(super) fn reject(
        &mut self,
        member: usize,
        origin: RejectOrigin,
        rejects: &[Reject],
    ) -> Result<(), Stopped> {
        let number = self.of(member)?.number;
        let kept = self.destination.reject(number, origin, rejects);
        kept.map_err(|e| self.failed(e))?;
        self.count(member, rejects.len() as u64, rejects)
    }

    /// The rows that the destination has refused of the last batch, which had `rows` rows.
    pub(super) fn refused(&mut self, member: usize, rows: u64) -> Result<u64, Stopped> {
        let work = self.work;
        let one = self.of(member)?;
        let number = one.number;
        if one.stream.target.rejects.is_none() {
            return Ok(0);
        }
        let refused = self.destination.refused(number);
        let refused = refused.map_err(|e| self.failed(e))?;
        if refused.rows > rows {
            let text = format!("received {rows} rows and refuses {} of them", refused.rows);
            let lied = self.of(member)?.lied(work, text, "writer.refused");
            return Err(Stopped::because(lied));
        }
        self.count(member, refused.rows, &refused.first)?;
        Ok(refused.rows)
    }

    fn count(&mut self, member: usize, rows: u64, first: &[Reject]) -> Result<(), Stopped> {
        if rows == 0 {
            return Ok(());
        }
        let work = self.work;
        let document = &work.plan.document;
        let one = self.of(member)?;
        let more = Rejected::of(rows, first, |text| document.redact(text));
        one.open.rejected.add(more);
        if let Some(checkpoint) = &mut one.checkpoint {
            checkpoint.behind += rows;
        }
        let total = rejected(work, one);
        match document.rejects.max_rows {
            Some(most) if total.rows > most => {
                // The other records of the batch are not counted yet.
                let rejects = counted(total.rows, "reject");
                let what = format!("{rejects} so far, more than max_rows: {most}");
                Err(above(work, one, &total, what))
            }
            _ => Ok(()),
        }
    }
}

/// Compares the share of rejects with the limit, before a commit of the stream.
pub(super) fn ensure_few(work: &Work<'_>, one: &Written<'_>, is_last: bool) -> Result<(), Stopped> {
    let Some(most) = work.plan.document.rejects.max_share else {
        return Ok(());
    };
    let total = rejected(work, one);
    let records = records(work, one, &total);
    let is_judged = is_last || records >= MIN_RECORDS || work.plan.commits_at_checkpoints;
    if is_judged && most.is_exceeded(total.rows, records) {
        let what = format!(
            "{} in {} so far, more than max_share: {most}",
            counted(total.rows, "reject"),
            counted(records, "record"),
        );
        return Err(above(work, one, &total, what));
    }
    Ok(())
}

/// The rejects of a stream that count: those of this run, or since the last commit where the source waits for each commit.
fn rejected(work: &Work<'_>, one: &Written<'_>) -> Rejected {
    if work.plan.commits_at_checkpoints {
        return one.open.rejected.clone();
    }
    let mut total = work.ledger.of(&one.stream.name).rejected;
    total.add(one.open.rejected.clone());
    total
}

/// The records of a stream among which these rejects were.
fn records(work: &Work<'_>, one: &Written<'_>, rejected: &Rejected) -> u64 {
    let committed = match work.plan.commits_at_checkpoints {
        true => 0,
        false => work.ledger.of(&one.stream.name).rows,
    };
    committed + one.open.rows + rejected.rows
}

fn above(work: &Work<'_>, one: &Written<'_>, total: &Rejected, what: String) -> Stopped {
    let mut text = what;
    if let Some(first) = total.first.first() {
        text += &format!("; the first: {}", first.shown());
    }
    if total.first.len() > 1 {
        let shown: Vec<String> = total.first.iter().map(RejectReport::shown).collect();
        let listed = format!("the first rejects are {}", shown.join("; "));
        work.ledger
            .warn(&one.stream.name, work.plan.document.redact(&listed));
    }
    let failure = Failure::new(Class::Contract, "too_many_rejects", text);
    let failure = failure.in_stream(&one.stream.name);
    let rejects = one.stream.target.rejects.as_ref();
    Stopped::because(failure.hint(match rejects.is_some_and(|one| !one.replayed.is_empty()) {
        true => {
            "repair the records, or raise the limit in rejects; this commit changed nothing, so all its records are \
             rejects still"
        }
        false => {
            "correct the records at the source, or raise the limit in rejects; the records since the last commit are \
             neither in the target nor in the place for rejects"
        }
    }))
}
