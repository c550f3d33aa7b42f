//! The privileges that the role lacks to write a stream: all at once, with the statements that grant them.

use rapidbyte_pg::ident::quote_ident;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;
use crate::deletes;
use crate::look::{Found, TableFacts};
use crate::target::rows_may_come_again;

/// Starts a script of statements.
const OWNER_RUNS: &str = "-- run in psql, as the owner or a superuser:";

/// The missing privileges, and the statements of the script, each once.
struct Missing<'a> {
    found: &'a Found,
    name: &'a Name,
    texts: Vec<String>,
    script: Vec<String>,
}

/// Refuses a stream whose table the role may not write as `target` says. Errors: `no_privilege`.
pub(crate) fn refuse_missing(
    target: &Target,
    name: &Name,
    schema: &Schema,
    found: &Found,
    truncates: bool,
) -> Result<()> {
    let mut missing = Missing {
        found,
        name,
        texts: Vec::new(),
        script: Vec::new(),
    };
    match &found.facts.table {
        Some(table) => missing.of_table(target, schema, table, truncates),
        None => missing.creating(),
    }
    if target.write_mode == WriteMode::Upsert || rows_may_come_again(target) {
        missing.staging();
    }
    missing.refuse()
}

/// Refuses a role that may not make temporary tables, which the rows need. Errors: `no_privilege`.
pub(crate) fn refuse_unstaged(name: &Name, found: &Found) -> Result<()> {
    let mut missing = Missing {
        found,
        name,
        texts: Vec::new(),
        script: Vec::new(),
    };
    missing.staging();
    missing.refuse()
}

/// Two errors of missing privileges as one; each line is there once.
pub(crate) fn both(first: Error, second: Error) -> Error {
    let joined = |first: &str, second: &str| {
        let more = second
            .lines()
            .filter(|line| !first.lines().any(|l| l == *line));
        let lines: Vec<&str> = first.lines().chain(more).collect();
        lines.join("\n")
    };
    let text = joined(&first.message, &second.message);
    let hint = |error: Error| error.hint.unwrap_or_default();
    let hint = joined(&hint(first), &hint(second));
    Error::new(ErrorKind::Auth, "no_privilege", text).hint(hint)
}

impl Missing<'_> {
    fn add(&mut self, text: String, statements: impl IntoIterator<Item = String>) {
        let user = quote_ident(&self.found.facts.user);
        self.texts.push(format!("{user} may not {text}"));
        for statement in statements {
            let statement = format!("{statement};");
            if !self.script.contains(&statement) {
                self.script.push(statement);
            }
        }
    }

    /// A table that is not there.
    fn creating(&mut self) {
        let facts = &self.found.facts;
        let (user, database) = (quote_ident(&facts.user), quote_ident(&facts.database));
        let types = self.found.missing_types.iter();
        let types = types.filter(|ty| !ty.has_schema).map(|ty| &ty.schema);
        let own = (!facts.has_schema).then_some(&self.name.schema);
        if !facts.may_create_schema {
            for schema in own.into_iter().chain(types) {
                let schema = quote_ident(schema);
                self.add(
                    format!("create the schema {schema} in {database}, which is missing"),
                    [format!("CREATE SCHEMA {schema} AUTHORIZATION {user}")],
                );
            }
        }
        if facts.has_schema && !facts.may_create_table {
            let schema = quote_ident(&self.name.schema);
            self.add(
                format!("create tables in the schema {schema}"),
                [format!("GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}")],
            );
        }
    }

    /// A table that is there.
    fn of_table(&mut self, target: &Target, schema: &Schema, table: &TableFacts, truncates: bool) {
        let (name, user) = (self.name, quote_ident(&self.found.facts.user));
        let is_filled = |column: &&String| schema.field_with_name(column).is_ok();
        let quoted = |columns: Vec<&String>| {
            let columns: Vec<String> = columns.into_iter().map(|c| quote_ident(c)).collect();
            columns.join(", ")
        };
        if !self.found.facts.may_use_schema {
            let of = quote_ident(&name.schema);
            self.add(
                format!("use the schema {of}"),
                [format!("GRANT USAGE ON SCHEMA {of} TO {user}")],
            );
        }
        let closed: Vec<&String> = table.closed_columns.iter().filter(is_filled).collect();
        if !table.may_insert {
            self.add(
                format!("insert into {name}"),
                [format!("GRANT INSERT ON {name} TO {user}")],
            );
        } else if !closed.is_empty() {
            let columns = quoted(closed);
            self.add(
                format!("insert into these columns of {name}: {columns}"),
                [format!("GRANT INSERT ({columns}) ON {name} TO {user}")],
            );
        }
        let (may_select, may_delete) = (table.may_select, table.may_delete);
        let (may_empty, privilege) = match truncates {
            true => (table.may_truncate, "TRUNCATE"),
            false => (may_delete, "DELETE"),
        };
        if target.write_mode == WriteMode::Replace && !(may_select && may_empty) {
            self.add(
                format!("delete the rows of {name}"),
                [format!(
                    "GRANT SELECT, INSERT, {privilege} ON {name} TO {user}"
                )],
            );
        }
        if let Some(facts) = &self.found.upsert {
            let deletes = target.deleted_field.is_some() || deletes::removes(target);
            let is_mark = |column: &String| deletes::mark_column(target) == Some(column);
            let is_key = |column: &String| target.primary_key.contains(column);
            let mut closed = facts
                .closed_reads
                .iter()
                .chain(facts.closed_updates.iter().filter(|column| !is_key(column)));
            if closed.any(|column| is_filled(&column) || is_mark(column)) || deletes && !may_delete
            {
                let delete = if deletes { ", DELETE" } else { "" };
                self.add(
                    format!("read and change the rows of {name}, for upsert"),
                    [format!(
                        "GRANT SELECT, INSERT, UPDATE{delete} ON {name} TO {user}"
                    )],
                );
            }
        }
        if let Some(facts) = &self.found.repeats {
            let mut read = target.primary_key.iter().chain(&target.dedup_fields);
            if read.any(|column| facts.closed_reads.contains(column)) {
                self.add(
                    format!("read the rows of {name}, to skip rows that it already has"),
                    [format!("GRANT SELECT, INSERT ON {name} TO {user}")],
                );
            }
        }
    }

    fn staging(&mut self) {
        let facts = &self.found.facts;
        if facts.may_use_temp {
            return;
        }
        let (user, database) = (quote_ident(&facts.user), quote_ident(&facts.database));
        self.add(
            format!("create temporary tables in {database}, which the rows need"),
            [format!("GRANT TEMPORARY ON DATABASE {database} TO {user}")],
        );
    }

    fn refuse(self) -> Result<()> {
        if self.texts.is_empty() {
            return Ok(());
        }
        let hint = format!("{OWNER_RUNS}\n{}", self.script.join("\n"));
        Err(Error::new(ErrorKind::Auth, "no_privilege", self.texts.join("\n")).hint(hint))
    }
}
