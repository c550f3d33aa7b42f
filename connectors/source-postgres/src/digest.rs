//! Digests of a stream's rows, which the server computes.

use rapidbyte_pg::digest::{self, PROOF, PROVEN, Recipe, SETTINGS};
use rapidbyte_pg::model::Column;
use rapidbyte_pg_client::{Client, buckets, digested_rows};
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;
use crate::cursor::Cursor;
use crate::error::convert;
use crate::explain::{is_of_filter, wrong_filter};
use crate::look::look_up;
use crate::order;
use crate::relation::{self, Relation};
use crate::session;

/// The rows that both sides have, by the first column of a cursor or by all of them.
pub(crate) fn limits(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    snapshot: Option<&str>,
) -> Result<Vec<RowLimit>> {
    let (Some(increment), Some(json)) = (&selection.increment, &selection.cursor) else {
        return Ok(Vec::new());
    };
    let Cursor::Ordered(cursor) = Cursor::parse(json)? else {
        let text =
            "rows that are read by transaction ids cannot be told from rows that were not read yet";
        return Err(Error::config("unsupported_verify", text)
            .hint("compare streams with change_detection: cursor, or full refreshes"));
    };
    let columns = increment.cursor_fields.clone();
    let Some(mut values) = cursor.values else {
        return Ok(vec![RowLimit {
            columns,
            values: Vec::new(),
            is_lower: false,
        }]);
    };
    let lag = match &increment.late_rows {
        LateRows::Lag(lag) => lag.as_deref(),
        LateRows::Exact => None,
    };
    let mut upper = columns.clone();
    let begin = session::beginning(client, settings, snapshot);
    if let Some(below) = below(client, &begin, selection, &columns, (&values, lag))? {
        values = vec![below];
        upper.truncate(1);
    }
    let mut limits = vec![RowLimit {
        columns: upper,
        values,
        is_lower: false,
    }];
    limits.extend(increment.initial.clone().map(|values| RowLimit {
        columns,
        values,
        is_lower: true,
    }));
    Ok(limits)
}

/// The first value of the cursor minus the lag; none without a lag. Errors: `unsupported_verify`.
fn below(
    client: &mut Client,
    begin: &str,
    selection: &Selection,
    fields: &[String],
    (values, lag): (&[String], Option<&str>),
) -> Result<Option<String>> {
    client.execute(begin)?;
    let seen = look_up(client, selection)?;
    let keys = order::keys(client, &seen.relation, &seen.described.columns, fields)?;
    if let Some(key) = keys.iter().find(|key| key.field.collation.is_some()) {
        let text = "the cursor is a text, and two servers may order texts differently";
        return Err(Error::config("unsupported_verify", text)
            .hint("compare streams with a cursor of a number or a time, or full refreshes")
            .in_column(&key.field.name));
    }
    let below = match (lag, keys.first(), values.first()) {
        (Some(lag), Some(key), Some(value)) => {
            order::check_lag(client, key, lag)?;
            let question = format!("SELECT ({})::pg_catalog.text", key.below(value, lag));
            let [answer] = client.query_all(&question)?;
            Some(answer.single()?.to_owned())
        }
        _ => None,
    };
    client.send_rollback()?;
    Ok(below)
}

/// A question about the rows of a selection.
pub(crate) struct Asked<'a> {
    settings: &'a Settled,
    selection: &'a Selection,
    /// The server's name of the snapshot that has the rows. `None`: the rows as they are now.
    snapshot: Option<&'a str>,
    recipe: &'a str,
    limits: &'a [RowLimit],
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        settings: &'a Settled,
        selection: &'a Selection,
        snapshot: Option<&'a str>,
        (recipe, limits): (&'a str, &'a [RowLimit]),
    ) -> Self {
        Self {
            settings,
            selection,
            snapshot,
            recipe,
            limits,
        }
    }

    fn beginning(&self, client: &Client) -> String {
        session::beginning(client, self.settings, self.snapshot)
    }
}

/// The rows of a selection.
struct Chosen {
    relation: Relation,
    columns: Vec<Column>,
    recipe: Recipe,
    conditions: Vec<String>,
}

impl Chosen {
    /// Looks up the rows. Leaves no transaction.
    fn new(client: &mut Client, asked: &Asked<'_>) -> Result<Self> {
        let Asked {
            settings,
            selection,
            recipe,
            limits,
            ..
        } = *asked;
        client.execute(&asked.beginning(client))?;
        let seen = look_up(client, selection);
        if client.is_usable() {
            client.execute("ROLLBACK")?;
        }
        let seen = seen?;
        seen.relation.refuse_unreadable(settings)?;
        let all = seen.described.columns;
        let mut conditions: Vec<String> = selection.filter.iter().cloned().collect();
        for limit in limits {
            let columns = relation::choose(all.clone(), Some(&limit.columns))?;
            let columns: Vec<&Column> = columns.iter().collect();
            conditions.push(digest::beside(&columns, &limit.values, limit.is_lower));
        }
        let columns = relation::choose(all, selection.columns.as_deref())?;
        let recipe = Recipe::parse(recipe, columns.len()).map_err(convert)?;
        Ok(Self {
            relation: seen.relation,
            columns,
            recipe,
            conditions,
        })
    }
}

/// The sums of the buckets of a selection.
pub(crate) fn sums(
    client: &mut Client,
    asked: &Asked<'_>,
    within: Option<&Buckets>,
    bits: u8,
) -> Result<Vec<Bucket>> {
    let chosen = Chosen::new(client, asked)?;
    let within = within.map(|buckets| (buckets.bits, buckets.numbers.as_slice()));
    let answer = chosen.ask(client, asked, |rows, recodes| {
        rows.buckets(bits, within, recodes)
    })?;
    buckets(&answer)
}

/// The digests of single rows of a selection.
pub(crate) fn rows(
    client: &mut Client,
    asked: &Asked<'_>,
    rows: &ChosenRows,
    max: u32,
) -> Result<Vec<DigestedRow>> {
    let chosen = Chosen::new(client, asked)?;
    let is_of_keys = matches!(rows, ChosenRows::Keys(_));
    let answer = chosen.ask(client, asked, |digested, recodes| match rows {
        ChosenRows::Of(buckets) => digested.rows(buckets.bits, &buckets.numbers, max, recodes),
        ChosenRows::Keys(keys) => digested.of_keys(keys, max, recodes),
    })?;
    digested_rows(&answer, chosen.recipe.key_columns(), is_of_keys)
}

impl Chosen {
    fn ask(
        &self,
        client: &mut Client,
        asked: &Asked<'_>,
        question: impl FnOnce(digest::Digested<'_>, bool) -> String,
    ) -> Result<rapidbyte_pg_client::Rows> {
        let begin = format!("{}; {SETTINGS}", asked.beginning(client));
        let columns: Vec<Option<&Column>> = self.columns.iter().map(Some).collect();
        let from = self.relation.sql();
        let rows = self.recipe.rows(&from, &columns, self.conditions.clone());
        let answer = client.digests(&begin, (PROOF, PROVEN), |recodes| question(rows, recodes));
        answer.map_err(|error| match &asked.selection.filter {
            Some(filter) if is_of_filter(&error) => wrong_filter(error, filter),
            _ => error,
        })
    }
}
