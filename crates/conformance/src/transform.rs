//! Clauses for a transform: its plan, and the rows that come of a batch.
//!
//! The input is rows that the test makes, one column for each portable type, or rows of the peer for a transform whose
//! settings name columns.

mod input;
mod running;

use std::cell::{Cell, OnceCell};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use rapidbyte_runtime::{ErrorKind, TransformPlan};
use rapidbyte_wire::{counted, ipc};

use crate::bench::{Bench, Trouble};
use crate::judges::Judges;
use crate::source::kept::Kept;
use crate::verdict::*;
use input::Input;
use running::Running;

/// How often `next` is called after the end of a batch.
const CALLS_AFTER_END: usize = 2;

/// The transform under test, with its input and its first answers.
struct Subject<'b> {
    bench: &'b Bench<'b>,
    /// The input that the transform planned, and the plan.
    planned: OnceCell<(Input, TransformPlan)>,
    /// The rows that came of the first rows of the input.
    rows: OnceCell<RecordBatch>,
    /// The same rows came again.
    repeats: Cell<bool>,
}

/// Opens a session instead of a check: transforms do not have `check`.
pub(crate) fn open(bench: &Bench<'_>) -> Judged {
    let opened = bench.transform(bench.config()?);
    opened
        .map_err(|trouble| trouble.fails_first("take these settings in open, or correct them"))?;
    Ok(String::new())
}

/// Judges all clauses of a transform.
pub(crate) fn judge(bench: &Bench<'_>, judges: &mut Judges<'_>) {
    let subject = Subject {
        bench,
        planned: OnceCell::new(),
        rows: OnceCell::new(),
        repeats: Cell::new(false),
    };
    let mut judge = |clause: &'static Clause, judge: &dyn Fn() -> Judged| {
        if judges.met_wrong_setup() {
            judges.stop_at_newest();
        }
        judges.judge(clause, judge);
    };
    judge(&TRANSFORM_PLAN, &|| subject.plan());
    judge(&TRANSFORM_PLAN_AGAIN, &|| subject.plan_again());
    judge(&BEGIN, &|| subject.begins());
    judge(&TRANSFORM_BATCHES, &|| subject.batches());
    judge(&SAME_ROWS, &|| subject.same_rows());
    judge(&NO_ROWS, &|| subject.no_rows());
    judge(&NULLS, &|| subject.nulls());
    judge(&END, &|| subject.end());
    judge(&TRANSFORM_SESSION, &|| subject.session());
}

impl<'b> Subject<'b> {
    fn plan(&self) -> Judged {
        const ACTION: &str = "give the stream's name, one source type for each column, and a key that is made of columns";
        let opened = self.bench.transform(self.bench.config()?).map(drop);
        opened.map_err(|trouble| trouble.blocks(&OPEN))?;
        let mut input = Input::of(self.bench)?;
        let mut first_refusal = None;
        let plan = loop {
            let planned = self.plan_of(&input);
            let trouble = match planned {
                Ok(plan) => break plan,
                Err(trouble) => trouble,
            };
            let less = input.without_refused(&trouble)?;
            let trouble = first_refusal.get_or_insert(trouble);
            match less {
                Some(less) => input = less,
                None if trouble.accuses_setup() => {
                    let text = format!("{}: {}", trouble.text(), input.advice());
                    return Err(setup(text));
                }
                None => return Err(trouble.fails(ACTION)),
            }
        };
        let schema = schema_of(&plan)?;
        let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        let is_double = |(at, name): &(usize, &&String)| names[..*at].contains(name);
        if let Some((_, name)) = names.iter().enumerate().find(is_double) {
            let seen = format!("two columns are called {name:?}");
            return Err(fail(seen, "give each column another name"));
        }
        let detail = format!("{} of {}", counted(names.len(), "column"), input.told());
        // Set once: this clause is judged once.
        let _ = self.planned.set((input, plan));
        Ok(detail)
    }

    /// The plan of a session of its own.
    fn plan_of(&self, input: &Input) -> Result<TransformPlan, Trouble> {
        let mut transform = self.bench.transform(&self.bench.settings())?;
        self.bench.note(transform.plan(&input.relation))
    }

    /// The input and its plan, or the clause that tells why the plan is missing.
    fn planned(&self) -> Result<(&Input, &TransformPlan), Verdict> {
        self.bench.config()?;
        let planned = self.planned.get();
        let (input, plan) = planned.ok_or_else(|| skip("no stream is planned: see plan"))?;
        Ok((input, plan))
    }

    fn plan_again(&self) -> Judged {
        const ACTION: &str = "let the plan follow from the settings and the input alone";
        let (input, first) = self.planned()?;
        let twice = || {
            let mut transform = self.bench.transform(&self.bench.settings())?;
            let one = self.bench.note(transform.plan(&input.relation))?;
            let two = self.bench.note(transform.plan(&input.relation))?;
            Ok((one, two))
        };
        let (one, two) = twice().map_err(|trouble: Trouble| trouble.fails(ACTION))?;
        for (plan, place) in [(one, "another session"), (two, "the same session")] {
            if let Some(what) = other_plan(first, &plan)? {
                let seen = format!("in {place} the plan has other {what}");
                return Err(fail(seen, ACTION));
            }
        }
        Ok("3 plans".into())
    }

    /// Begins the stream of an input in a session of its own.
    fn begin(&self, input: &Input) -> Result<Running<'b>, Trouble> {
        let transform = self.bench.transform(&self.bench.settings())?;
        Running::begin(self.bench, transform, input)
    }

    fn begins(&self) -> Judged {
        const ACTION: &str = "let begin of the transform give the schema that plan gives";
        let (input, plan) = self.planned()?;
        let running = self.begin(input);
        let running = running.map_err(|trouble| trouble.fails(ACTION))?;
        let (planned, begun) = (schema_of(plan)?, running.schema());
        match planned.fields() == begun.fields() {
            true => Ok(counted(begun.fields().len(), "column")),
            false => Err(fail(differing(&planned, begun), ACTION)),
        }
    }

    fn batches(&self) -> Judged {
        const ACTION: &str =
            "give each batch with the transformer's schema and at least one row, and then nothing";
        let (input, _) = self.planned()?;
        let begun = self.begin(input);
        let mut running = begun.map_err(|trouble| trouble.blocks(&BEGIN))?;
        let rows = running.put(&input.rows).map_err(|trouble| {
            match trouble.accuses_setup() {
                // The rows of the test have any value that their types allow.
                true => setup(format!("{}: {}", trouble.text(), input.advice())),
                false => trouble.fails(ACTION),
            }
        })?;
        let detail = format!(
            "{} of {}",
            counted(rows.num_rows(), "row"),
            input.rows.num_rows()
        );
        let is_empty = rows.num_rows() == 0;
        // Set once: this clause is judged once.
        let _ = self.rows.set(rows);
        match is_empty {
            false => Ok(detail),
            true => Err(skip(format!(
                "no row comes of {} rows: {}",
                input.rows.num_rows(),
                input.advice()
            ))),
        }
    }

    /// The input and the rows that come of its first rows, or the clause that tells why none came.
    fn transformed(&self) -> Result<(&Input, &RecordBatch), Verdict> {
        let (input, _) = self.planned()?;
        let rows = self.rows.get();
        let rows = rows.ok_or_else(|| skip("rows are not transformed: see batches"))?;
        Ok((input, rows))
    }

    /// The same, if rows came.
    fn with_rows(&self) -> Result<(&Input, &RecordBatch), Verdict> {
        let transformed = self.transformed()?;
        match transformed.1.num_rows() {
            0 => Err(skip("no row came: see batches")),
            _ => Ok(transformed),
        }
    }

    fn same_rows(&self) -> Judged {
        const ACTION: &str = "let the rows follow from the settings and the batch alone: keep nothing from one batch to the next";
        let (input, expected) = self.with_rows()?;
        let fails = |trouble: Trouble| trouble.fails(ACTION);
        let mut running = self.begin(input).map_err(fails)?;
        let first = running.put(&input.rows).map_err(fails)?;
        let again = running.put(&input.rows).map_err(fails)?;
        let others = running.put(&input.others).map_err(fails)?;
        let behind = running.put(&input.rows).map_err(fails)?;
        let mut another = self.begin(input).map_err(fails)?;
        let others_alone = another.put(&input.others).map_err(fails)?;
        for (expected, found, place) in [
            (expected, &first, "in another session"),
            (expected, &again, "a second time"),
            (&others_alone, &others, "after another batch"),
            (expected, &behind, "after another batch"),
        ] {
            if let Some(seen) = difference(expected, found)? {
                return Err(fail(format!("{place}: {seen}"), ACTION));
            }
        }
        self.repeats.set(true);
        Ok("4 times".into())
    }

    fn no_rows(&self) -> Judged {
        const ACTION: &str = "take a batch without rows, and give nothing for it";
        let (input, _) = self.transformed()?;
        let begun = self.begin(input);
        let mut running = begun.map_err(|trouble| trouble.blocks(&BEGIN))?;
        let found = running.put(&input.rows.slice(0, 0));
        match found.map_err(|trouble| trouble.fails(ACTION))?.num_rows() {
            0 => Ok(String::new()),
            rows => Err(fail(counted(rows, "row"), ACTION)),
        }
    }

    fn nulls(&self) -> Judged {
        const ACTION: &str = "transform NULL in each column, or refuse it with an error of kind data that names the column";
        let (input, _) = self.transformed()?;
        let begun = self.begin(input);
        let mut running = begun.map_err(|trouble| trouble.blocks(&BEGIN))?;
        let nulls = input.nulls()?;
        match running.put(&nulls) {
            Ok(rows) => Ok(counted(rows.num_rows(), "row")),
            Err(Trouble::Error(_, error))
                if matches!(error.kind, ErrorKind::Data) && error.column.is_some() =>
            {
                Ok(format!("refused: {}", error.message))
            }
            Err(trouble) => Err(trouble.fails(ACTION)),
        }
    }

    fn end(&self) -> Judged {
        const ACTION: &str = "let next give nothing until the next put";
        let (input, _) = self.transformed()?;
        let begun = self.begin(input);
        let mut running = begun.map_err(|trouble| trouble.blocks(&BEGIN))?;
        let put = running.put(&input.rows);
        put.map_err(|trouble| trouble.blocks(&TRANSFORM_BATCHES))?;
        for _ in 0..CALLS_AFTER_END {
            let next = running.next();
            if let Some(rows) = next.map_err(|trouble| trouble.fails(ACTION))? {
                let seen = format!("{} after the end", counted(rows.num_rows(), "row"));
                return Err(fail(seen, ACTION));
            }
        }
        Ok(String::new())
    }

    /// Transforms one stream, and then another one with the columns in reverse order.
    fn session(&self) -> Judged {
        const ACTION: &str =
            "keep what belongs to one stream in its transformer, not in the session";
        let (input, _) = self.with_rows()?;
        if !self.repeats.get() {
            return Err(skip("rows cannot be compared: see same-rows"));
        }
        let other = input.reversed()?;
        let alone = self
            .plan_of(&other)
            .and_then(|_| self.begin(&other)?.put(&other.rows));
        let expected = alone.map_err(|trouble| {
            let reason = "its columns in reverse order are not transformed";
            skip(format!("{reason}: {}", trouble.text()))
        })?;
        let mut running = self.begin(input).map_err(|trouble| trouble.fails(ACTION))?;
        let put = running.put(&input.rows);
        put.map_err(|trouble| trouble.fails(ACTION))?;
        let Some(mut transform) = running.finish() else {
            return Err(skip("the session holds too much memory for another stream"));
        };
        let planned = self.bench.note(transform.plan(&other.relation));
        let found = planned.and_then(|_| {
            let mut running = Running::begin(self.bench, transform, &other)?;
            running.put(&other.rows)
        });
        let found = found.map_err(|trouble| trouble.fails(ACTION))?;
        match difference(&expected, &found)? {
            None => Ok("2 streams".into()),
            Some(seen) => Err(fail(format!("of the second stream: {seen}"), ACTION)),
        }
    }
}

fn schema_of(plan: &TransformPlan) -> Result<Schema, Verdict> {
    let schema = ipc::decode_schema(&plan.output.schema);
    schema.map_err(|error| skip(format!("the schema of the plan: {error}")))
}

/// The first part in which two plans differ.
fn other_plan(one: &TransformPlan, two: &TransformPlan) -> Result<Option<&'static str>, Verdict> {
    let (here, there) = (&one.output, &two.output);
    Ok(if schema_of(one)?.fields() != schema_of(two)?.fields() {
        Some("columns")
    } else if here.source_types != there.source_types {
        Some("source types")
    } else if here.primary_key != there.primary_key {
        Some("key columns")
    } else if one.notes != two.notes {
        Some("notes")
    } else {
        None
    })
}

/// The first column in which two schemas differ.
fn differing(planned: &Schema, begun: &Schema) -> String {
    let (one, two) = (planned.fields().len(), begun.fields().len());
    let pairs = planned.fields().iter().zip(begun.fields());
    let word = |is_nullable: bool| if is_nullable { "" } else { " not null" };
    let told = |field: &arrow_schema::Field| {
        let name = rapidbyte_wire::types::type_name(field);
        format!("{} {name}{}", field.name(), word(field.is_nullable()))
    };
    match pairs.into_iter().find(|(planned, begun)| planned != begun) {
        Some((planned, begun)) => format!("planned {}, begun {}", told(planned), told(begun)),
        None => format!("{} planned, {two} begun", counted(one, "column")),
    }
}

/// In what rows differ from the expected rows, in any order.
fn difference(expected: &RecordBatch, found: &RecordBatch) -> Result<Option<String>, Verdict> {
    let of = |rows| Kept::of(rows).map_err(skip);
    let (expected, found) = (of(expected)?, of(found)?);
    let is_same = expected.digest == found.digest && expected.names() == found.names();
    Ok((!is_same).then(|| expected.difference_in("", |_| true, &found)))
}
