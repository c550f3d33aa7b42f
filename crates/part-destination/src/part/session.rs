//! A destination that was opened: what it would do.

use std::rc::Rc;

use rapidbyte_rows::{Held, Refusal, one};

use crate::part::contract::{
    self, Bucket, Buckets, CheckItem, ChosenRows, ColumnPlan, DigestedRow, Fit, GuestSession,
    KeptReject, LoadRequest, Plan, Presence, Progress, RowLimit, Target, Worker,
};
use crate::part::load::{Load, TOGETHER};
use crate::part::script;
use crate::part::target::as_script;
use crate::part::{Error, of_host, refused};

/// The script, opened with one configuration.
pub struct Session(Rc<script::Session>);

impl Session {
    pub fn new(script: script::Session) -> Self {
        Self(Rc::new(script))
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>, Error> {
        self.0.check()
    }

    fn plan(&self, target: Target) -> Result<Plan, Error> {
        let (held, target) = as_script(target)?;
        let plan = self.0.plan(&target)?;
        for refusal in &plan.refused {
            if !held.iter().any(|column| column.name == refusal.column) {
                let text = format!("`plan` refuses `{}`, which is not a column", refusal.column);
                let refusal = Refusal::internal("unknown_column", text)
                    .hint("refuse only columns of the target in `plan`");
                return Err(refused(refusal, &target.stream));
            }
        }
        let planned = held
            .into_iter()
            .map(|column| planned(column, &plan.refused));
        Ok(Plan {
            columns: planned.collect(),
            location: plan.location,
            statements: Vec::new(),
            notes: plan.notes,
            is_new: plan.is_new,
            new_columns: Vec::new(),
        })
    }

    fn digest_recipe(&self, _: Target, _: Vec<String>) -> Result<String, Error> {
        Err(no_digests())
    }

    fn digest(
        &self,
        _: Target,
        _: String,
        _: Vec<RowLimit>,
        _: Option<Buckets>,
        _: u8,
    ) -> Result<Vec<Bucket>, Error> {
        Err(no_digests())
    }

    fn digest_rows(
        &self,
        _: Target,
        _: String,
        _: Vec<RowLimit>,
        _: ChosenRows,
        _: u32,
    ) -> Result<Vec<DigestedRow>, Error> {
        Err(no_digests())
    }

    fn progress(&self, _target: Target, _pipeline: String) -> Result<Option<Progress>, Error> {
        Ok(None)
    }

    fn working(&self, _pipeline: String) -> Result<Vec<Worker>, Error> {
        Ok(Vec::new())
    }

    fn beat(&self, _presence: Presence) -> Result<bool, Error> {
        Ok(false)
    }

    fn rejects(
        &self,
        _to: String,
        _pipeline: String,
        _after: Option<String>,
        _with_data: bool,
    ) -> Result<Vec<KeptReject>, Error> {
        Ok(Vec::new())
    }

    fn begin(&self, requests: Vec<LoadRequest>) -> Result<contract::Load, Error> {
        let request = of_host(one::only(requests, TOGETHER))?;
        let load = Load::new(Rc::clone(&self.0), request);
        Ok(contract::Load::new(load))
    }
}

fn planned(column: Held, refused: &[script::Refusal]) -> ColumnPlan {
    let by_script = refused.iter().find(|refusal| refusal.column == column.name);
    let why = column
        .refused
        .or_else(|| by_script.map(|refusal| refusal.why.clone()));
    ColumnPlan {
        column: column.name,
        target_type: column.type_name,
        fit: if why.is_some() {
            Fit::Refused
        } else {
            Fit::Exact
        },
        note: why,
        stored_type: None,
    }
}

/// The error for a connector whose spec has no forms of digests.
fn no_digests() -> Error {
    let text = "the connector does not digest rows";
    refused(Refusal::internal("internal", text), "")
}
