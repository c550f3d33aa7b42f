//! Digests of a target's rows, which the server computes.

use rapidbyte_pg::Column;
use rapidbyte_pg::digest::{self, PROOF, PROVEN, Recipe, SETTINGS};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::{Client, buckets, digested_rows};
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::Decision;
use crate::lock::NO_PRIVILEGE;
use crate::look::{Within, local_settings};
use crate::place::Place;

/// The temporary table of staged rows.
const STAGED: &str = "rapidbyte_staged";

/// The name of the temporary table of staged rows.
pub(crate) fn staged() -> Name {
    Name {
        schema: "pg_temp".to_owned(),
        table: STAGED.to_owned(),
    }
}

/// The statements that make the temporary table of staged rows: the columns of the target, without its constraints and
/// defaults, so that a column that the stream lacks is NULL.
pub(crate) fn make_staged(name: &Name) -> String {
    format!(
        "DROP TABLE IF EXISTS {}; CREATE TEMPORARY TABLE {STAGED} AS TABLE {name} WITH NO DATA",
        staged()
    )
}

/// A target that is there, and whose columns no run would change.
pub(crate) struct Existing<'a> {
    name: &'a Name,
    schema: SchemaRef,
    decided: Decision,
}

/// Refuses a target that a run would make or change. Errors: `no_target`; `target_would_change`; the errors of a plan.
pub(crate) fn ensure_settled(decided: &Decision, name: &Name) -> Result<()> {
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
        return Err(
            Error::schema("target_would_change", text).hint("run the pipeline, and then compare")
        );
    }
    Ok(())
}

/// The place of a column of the stream among those that the table takes.
fn place(decided: &Decision, at: usize) -> Option<usize> {
    match &decided.kept {
        None => Some(at),
        Some(kept) => kept.iter().position(|kept| *kept == at),
    }
}

/// The columns of the table, one for each column of the stream.
pub(crate) fn columns<'a>(schema: &Schema, decided: &'a Decision) -> Vec<Option<&'a Column>> {
    let column = |at: usize| decided.targets.get(place(decided, at)?);
    (0..schema.fields().len()).map(column).collect()
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
        ensure_settled(&decided, name)?;
        Ok(Self {
            name,
            schema,
            decided,
        })
    }

    fn columns(&self) -> Vec<Option<&Column>> {
        columns(&self.schema, &self.decided)
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
        let casts = |at: usize| place(&self.decided, at).is_some_and(|place| cast.contains(&place));
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
        let from = match target.stages {
            true => self.staged(target, &columns),
            false => format!("{} AS t", self.name),
        };
        let rows = recipe.rows(&from, &columns, conditions);
        let begin = format!("BEGIN READ ONLY; {}; {SETTINGS}", local_settings());
        let answer = client.digests(&begin, (PROOF, PROVEN), |recodes| question(rows, recodes));
        answer.map_err(|error| {
            let error = match error.code == NO_PRIVILEGE {
                true => error.hint(format!(
                    "a comparison reads the target: have its owner run GRANT SELECT ON {} TO the role of the pipeline",
                    self.name
                )),
                false => error,
            };
            error.in_stream(&target.stream)
        })
    }

    /// The staged rows: with `upsert` the last of each key. A new table has its rows in the order in which they came.
    fn staged(&self, target: &Target, columns: &[Option<&Column>]) -> String {
        let staged = staged();
        let key = target.primary_key.iter().filter_map(|name| {
            let at = self.schema.index_of(name).ok()?;
            Some(quote_ident(&columns.get(at).copied().flatten()?.name))
        });
        let key: Vec<String> = key.collect();
        if target.write_mode != WriteMode::Upsert || key.is_empty() {
            return format!("{staged} AS t");
        }
        let key = key.join(", ");
        format!("(SELECT DISTINCT ON ({key}) * FROM {staged} ORDER BY {key}, ctid DESC) AS t")
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
