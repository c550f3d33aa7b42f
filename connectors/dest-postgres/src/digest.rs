//! Digests of a target's rows, which the server computes.

use rapidbyte_pg::Column;
use rapidbyte_pg::digest::{self, PROOF, PROVEN, Recipe, SETTINGS};
use rapidbyte_pg_client::{Client, buckets, digested_rows};
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::Decision;
use crate::load::Place;
use crate::look::{Within, local_settings};

/// A target that is there, and whose columns no run would change.
pub(crate) struct Existing<'a> {
    name: &'a Name,
    schema: SchemaRef,
    decided: Decision,
}

impl<'a> Existing<'a> {
    /// Errors: `no_target`; `target_would_change`; the errors of a plan.
    pub(crate) fn new(
        client: &mut Client,
        settings: &Settings,
        target: &Target,
        name: &'a Name,
    ) -> Result<Self> {
        let schema = target.arrow_schema()?;
        let place = Place {
            settings,
            target,
            name,
            schema: &schema,
            is_made: false,
        };
        let decided = place.decide(client, Within::Own)?;
        if decided.makes_table() {
            let text = format!("{name} does not exist");
            return Err(Error::schema("no_target", text)
                .hint("run the pipeline first: `rapidbyte run PIPELINE`"));
        }
        decided.ensure_loadable(name)?;
        if let Some(statement) = decided.prelude.first() {
            let text = format!(
                "{name} does not have the columns of the stream yet: a run would first do {statement}"
            );
            return Err(Error::schema("target_would_change", text)
                .hint("run the pipeline, and then compare"));
        }
        Ok(Self {
            name,
            schema,
            decided,
        })
    }

    /// The place of a column of the stream among those that the table takes.
    fn place(&self, at: usize) -> Option<usize> {
        match &self.decided.kept {
            None => Some(at),
            Some(kept) => kept.iter().position(|kept| *kept == at),
        }
    }

    /// The columns of the table, one for each column of the stream.
    fn columns(&self) -> Vec<Option<&Column>> {
        let column = |at: usize| self.decided.targets.get(self.place(at)?);
        (0..self.schema.fields().len()).map(column).collect()
    }

    /// The form of each value.
    pub(crate) fn recipe(&self, target: &Target) -> Result<String> {
        let at = |name: &String| self.schema.index_of(name).ok();
        let key = target
            .primary_key
            .iter()
            .map(at)
            .collect::<Option<Vec<_>>>();
        let deleted = target.deleted_field.as_ref().and_then(at).map(|at| {
            let is_flag = *self.schema.field(at).data_type() == DataType::Boolean;
            (at, is_flag)
        });
        let cast = &self.decided.cast;
        let casts = |at: usize| self.place(at).is_some_and(|place| cast.contains(&place));
        let recipe = Recipe::new(&self.columns(), casts, key.unwrap_or_default(), deleted);
        recipe.to_json().map_err(convert)
    }

    fn ask(
        &self,
        client: &mut Client,
        target: &Target,
        recipe: &Recipe,
        limits: &[RowLimit],
        question: impl FnOnce(digest::Digested<'_>, bool) -> String,
    ) -> Result<rapidbyte_pg_client::Rows> {
        let columns = self.columns();
        let mut conditions = Vec::new();
        for limit in limits {
            let find = |name: &String| {
                let at = self.schema.index_of(name).ok()?;
                columns.get(at).copied().flatten()
            };
            let of = limit.columns.iter().map(find).collect::<Option<Vec<_>>>();
            let of = of.ok_or_else(|| {
                let text = format!("{} does not have the columns of the cursor", self.name);
                Error::config("unsupported_verify", text)
                    .hint("let the stream have the columns that its cursor is made of")
            })?;
            conditions.push(digest::beside(&of, &limit.values, limit.is_lower));
        }
        let merge = self.decided.merge.as_ref();
        conditions.extend(merge.and_then(|merge| merge.compare.as_ref()?.is_living()));
        let from = format!("{} AS t", self.name);
        let rows = recipe.rows(&from, &columns, conditions);
        let begin = format!("BEGIN READ ONLY; {}; {SETTINGS}", local_settings());
        let answer = client.digests(&begin, (PROOF, PROVEN), |recodes| question(rows, recodes));
        answer.map_err(|error| error.in_stream(&target.stream))
    }

    /// The sums of the buckets of the rows.
    pub(crate) fn sums(
        &self,
        client: &mut Client,
        target: &Target,
        (recipe, limits): (&str, &[RowLimit]),
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let recipe = Recipe::parse(recipe, self.schema.fields().len()).map_err(convert)?;
        let within = within.map(|buckets| (buckets.bits, buckets.numbers.as_slice()));
        let answer = self.ask(client, target, &recipe, limits, |rows, recodes| {
            rows.buckets(bits, within, recodes)
        })?;
        buckets(&answer)
    }

    /// The digests of single rows.
    pub(crate) fn rows(
        &self,
        client: &mut Client,
        target: &Target,
        (recipe, limits): (&str, &[RowLimit]),
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let recipe = Recipe::parse(recipe, self.schema.fields().len()).map_err(convert)?;
        let answer = self.ask(
            client,
            target,
            &recipe,
            limits,
            |digested, recodes| match rows {
                ChosenRows::Of(buckets) => {
                    digested.rows(buckets.bits, &buckets.numbers, max, recodes)
                }
                ChosenRows::Keys(keys) => digested.of_keys(keys, max, recodes),
            },
        )?;
        let is_of_keys = matches!(rows, ChosenRows::Keys(_));
        digested_rows(&answer, recipe.key_columns(), is_of_keys)
    }
}
