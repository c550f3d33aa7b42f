//! Errors of the server, as errors of the contract.
//!
//! Fields and codes: PostgreSQL manual, "Error and Notice Message Fields" and "PostgreSQL Error
//! Codes".

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use rapidbyte_sdk::{Error, ErrorKind, Result};

/// A server repeats statements and values in its messages; longer ones are cut.
const MAX_TEXT_BYTES: usize = 2 << 10;

/// The code of an error about rows that policies would hide from the role.
pub const ROW_SECURITY: &str = "row_level_security";

/// The fields of an error or a notice; absent ones are empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub code: String,
    message: String,
    detail: String,
    hint: String,
    context: String,
    schema: String,
    table: String,
    column: String,
    constraint: String,
    /// The function of the server's source that reports; it is the same in every language.
    routine: String,
}

impl Report {
    pub fn read(mut fields: ErrorFields<'_>) -> Result<Self> {
        let mut report = Self::default();
        while let Some(field) = fields.next().map_err(protocol)? {
            let slot = match field.type_() {
                b'C' => &mut report.code,
                b'M' => &mut report.message,
                b'D' => &mut report.detail,
                b'H' => &mut report.hint,
                b'W' => &mut report.context,
                b's' => &mut report.schema,
                b't' => &mut report.table,
                b'c' => &mut report.column,
                b'n' => &mut report.constraint,
                b'R' => &mut report.routine,
                _ => continue,
            };
            // Before the encoding is agreed on a server may speak any.
            *slot = cut(&String::from_utf8_lossy(field.value_bytes()));
        }
        Ok(report)
    }

    /// Message and detail, and what they concern when they do not say it.
    pub fn sentence(&self) -> String {
        let mut text = self.message.clone();
        if !self.detail.is_empty() {
            text = format!("{text}; {}", self.detail);
        }
        let table = if self.schema.is_empty() {
            self.table.clone()
        } else {
            format!("{}.{}", self.schema, self.table)
        };
        let mut concerned = Vec::new();
        for (what, name) in [("table", &table), ("constraint", &self.constraint)] {
            let is_named = text.contains(&format!("\"{name}\""));
            if !self.table.is_empty() && !name.is_empty() && !is_named {
                concerned.push(format!("{what} {name}"));
            }
        }
        if !concerned.is_empty() {
            text = format!("{text} ({})", concerned.join(", "));
        }
        text
    }

    /// [`Self::sentence`], and what of a JSON document in a COPY is wrong.
    fn whole_sentence(&self) -> String {
        let inner = first_line(&self.context);
        match inner.starts_with("JSON data, ") {
            true => format!("{}; {inner}", self.sentence()),
            false => self.sentence(),
        }
    }

    pub fn into_error(self) -> Error {
        // A code is for programs: five letters and digits, or none that we know.
        let is_letter = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        let is_state = self.code.len() == 5 && self.code.bytes().all(is_letter);
        let code = if is_state {
            self.code.as_str()
        } else {
            "XX000"
        };
        let name = match self.routine.as_str() {
            // Among missing privileges only this one is not mended by a GRANT.
            "check_enable_rls" if code == "42501" => ROW_SECURITY.to_owned(),
            _ => format!("pg_{code}"),
        };
        // The innermost place is first: of JSON in a COPY its own line, then the row of the COPY.
        let copy = self.context.lines().find(|line| is_of_copy(line));
        // A binary value with too few bytes, which the server calls a violation of the protocol.
        let is_malformed = code == "08P01" && copy.is_some();
        let kind = match is_malformed {
            true => ErrorKind::Data,
            false => kind(code),
        };
        let mut error = Error::new(kind, &name, self.whole_sentence());
        error.hint = match self.hint.as_str() {
            "" if is_malformed => Some(MALFORMED.to_owned()),
            "" if name == ROW_SECURITY => None,
            // A policy's check, which the server gives the code of a missing privilege.
            "" if code == "42501" && self.routine == "ExecWithCheckOptions" => {
                Some(REFUSED_BY_POLICY.to_owned())
            }
            "" => hint(code).map(str::to_owned),
            _ => Some(self.hint),
        };
        let place = copy.unwrap_or_else(|| first_line(&self.context));
        error.location = Some(place)
            .filter(|line| !line.is_empty())
            .map(str::to_owned);
        error.column = if self.column.is_empty() {
            column_of_copy(place).map(str::to_owned)
        } else {
            Some(self.column)
        };
        error
    }
}

/// The kind of a server's error, which says who acts on it.
fn kind(code: &str) -> ErrorKind {
    match code {
        // Privileges; the rest of class 42 is about what is declared.
        "42501" => ErrorKind::Auth,
        "3D000" => ErrorKind::Config,
        // The program that is asked for asks the operator to change something.
        "55000" | "0A000" | "25006" => ErrorKind::Config,
        // Administrator's shutdown, crash, starting up, a dropped database, an idle session.
        "57P01" | "57P02" | "57P04" | "57P05" => ErrorKind::Connection,
        _ => match code.get(..2).unwrap_or_default() {
            "08" => ErrorKind::Connection,
            "28" => ErrorKind::Auth,
            // Values, constraints, two rows for one key, rows that are too long, RAISE in a trigger.
            "21" | "22" | "23" | "54" | "P0" => ErrorKind::Data,
            "3F" | "42" | "44" => ErrorKind::Schema,
            // Rollback by the server, resources, locks that are held, intervention, the system.
            "40" | "53" | "55" | "57" | "58" => ErrorKind::Transient,
            "F0" => ErrorKind::Config,
            _ => ErrorKind::Internal,
        },
    }
}

const REFUSED_BY_POLICY: &str = "row-level security of the table refuses the row, which no GRANT changes: write as the \
    table's owner or as a role with BYPASSRLS, or CREATE POLICY … FOR ALL TO the role … WITH CHECK (…) that allows the row";

const MALFORMED: &str = "correct the value: its bytes are not a value of the column's type in PostgreSQL's binary format";

/// A hint, for errors to which the server does not add its own.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "28P01" => "check the user and the password of the connection",
        "28000" => {
            "add a line for this user, this database and our address (with or without TLS) to \
                 the server's pg_hba.conf, and give the role LOGIN"
        }
        "3D000" => "check the name of the database, including upper and lower case",
        "42501" => "ask the owner of the object, or a superuser, to GRANT the privilege",
        "53100" => "free space on the server's disk",
        "53200" => "read the server's log: the server is out of memory",
        "53300" => {
            "end idle connections, raise max_connections, or lower the pipeline's parallelism: \
                 all of the server's connections are in use"
        }
        "57P01" => {
            "run again when the server is up: an administrator ended the session or the \
             server"
        }
        "57P02" => "read the server's log: another server process crashed",
        "57P03" => "run again in a moment: the server is starting, stopping or recovering",
        "57014" => "raise statement_timeout, or run again: the statement was cancelled",
        "40001" | "40P01" => "run again: another session conflicted with this one",
        "55P03" => "find the session that holds the lock in pg_stat_activity and pg_locks",
        "25006" => "connect to the primary: the server is a standby or read-only",
        "08P01" => {
            "remove `options`, or list the parameter in PgBouncer's ignore_startup_parameters: \
                 the pooler refuses unknown parameters"
        }
        _ => return None,
    })
}

fn is_of_copy(context: &str) -> bool {
    line_of_copy(context).is_some()
}

/// The line of `COPY t, line 5, column a: "…"`, which is the [location](Error::location) of an error in a COPY.
/// The server counts from 1, at the beginning of each COPY.
pub fn line_of_copy(context: &str) -> Option<u64> {
    let (_, place) = context.strip_prefix("COPY ")?.split_once(", line ")?;
    let end = place.find([',', ':']).unwrap_or(place.len());
    place[..end].parse().ok()
}

/// The column of `COPY t, line 5, column a: "…"`.
fn column_of_copy(context: &str) -> Option<&str> {
    let (_, place) = context.strip_prefix("COPY ")?.split_once(", line ")?;
    let (_, column) = place.split_once(", column ")?;
    let end = column.find(": ").unwrap_or(column.len());
    Some(column[..end].trim_end_matches(": null input"))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let mut end = MAX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// The other side does not speak the protocol.
pub(crate) fn protocol(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Connection,
        "protocol_violation",
        format!("the server breaks the protocol: {what}"),
    )
    .hint("check that a PostgreSQL server listens there")
}

/// Something that we are asked to send and cannot, such as a NUL byte in a statement.
pub(crate) fn unsendable(what: impl std::fmt::Display) -> Error {
    Error::data(
        "unsendable",
        format!("cannot be sent to the server: {what}"),
    )
    .hint("PostgreSQL does not accept NUL bytes in names, statements and text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_decides_who_acts() {
        for (code, expected) in [
            ("08006", ErrorKind::Connection),
            ("28P01", ErrorKind::Auth),
            ("42501", ErrorKind::Auth),
            ("42P01", ErrorKind::Schema),
            ("22P02", ErrorKind::Data),
            ("23505", ErrorKind::Data),
            ("40001", ErrorKind::Transient),
            ("53100", ErrorKind::Transient),
            ("57P01", ErrorKind::Connection),
            ("57P03", ErrorKind::Transient),
            ("3D000", ErrorKind::Config),
            ("XX000", ErrorKind::Internal),
            ("é", ErrorKind::Internal),
            ("", ErrorKind::Internal),
        ] {
            let found = std::mem::discriminant(&kind(code));
            assert_eq!(found, std::mem::discriminant(&expected), "{code}");
        }
    }

    #[test]
    fn a_malformed_value_of_a_copy_is_about_data() {
        let report = |context: &str| Report {
            code: "08P01".to_owned(),
            message: "insufficient data left in message".to_owned(),
            context: context.to_owned(),
            ..Report::default()
        };
        let of_row = report("COPY t, line 3, column a").into_error();
        assert!(matches!(of_row.kind, ErrorKind::Data));
        assert_eq!(of_row.column.as_deref(), Some("a"));
        assert!(
            of_row
                .hint
                .is_some_and(|hint| hint.contains("binary format"))
        );
        let of_session = report("").into_error();
        assert!(matches!(of_session.kind, ErrorKind::Connection));
    }

    #[test]
    fn the_place_in_a_copy_is_reported() {
        assert_eq!(column_of_copy("COPY t, line 5, column a: \"x\""), Some("a"));
        assert_eq!(column_of_copy("COPY t, line 5, column a"), Some("a"));
        assert_eq!(
            column_of_copy("COPY t, line 5: \", column b\""),
            Some("b\"")
        );
        assert_eq!(column_of_copy("SQL statement"), None);
        assert_eq!(line_of_copy("COPY t, line 5, column a: \"x\""), Some(5));
        assert_eq!(line_of_copy("COPY t, line 12: \"1\""), Some(12));
        assert_eq!(line_of_copy("COPY t, line 7"), Some(7));
        assert_eq!(line_of_copy("JSON data, line 1: {"), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = cut(&"é".repeat(MAX_TEXT_BYTES));
        assert!(text.len() < MAX_TEXT_BYTES + 4 && text.ends_with('…'));
    }
}
