//! Statements that make schemas, tables and types. Nothing here is run.

use crate::ident::{check_column_name, check_name, qualified, quote_ident, quote_literal};
use crate::model::{Column, Kind, PgType};
use crate::written;
use crate::{Owner, PgError};

/// `CREATE SCHEMA IF NOT EXISTS …`
pub fn create_schema(schema: &str) -> Result<String, PgError> {
    check_name(schema)?;
    Ok(format!(
        "CREATE SCHEMA IF NOT EXISTS {}",
        quote_ident(schema)
    ))
}

/// `CREATE TABLE schema.table (…)` with the columns' exact types, `NOT NULL` and the primary key.
///
/// Not taken over: defaults, generating expressions (the values are data here), identity and
/// collations, which another server need not have. `invalid_name` for a name that the server would
/// cut, and for a column with the name of a system column.
pub fn create_table(
    schema: &str,
    table: &str,
    columns: &[Column],
    primary_key: &[String],
) -> Result<String, PgError> {
    check_name(schema)?;
    check_name(table)?;
    let mut lines = Vec::with_capacity(columns.len() + 1);
    for column in columns {
        let not_null = if column.not_null { " NOT NULL" } else { "" };
        lines.push(format!("    {}{not_null}", column_with_type(column)?));
    }
    if !primary_key.is_empty() {
        lines.push(format!("    PRIMARY KEY ({})", name_list(primary_key)));
    }
    let body = if lines.is_empty() {
        String::new()
    } else {
        format!("\n{}\n", lines.join(",\n"))
    };
    Ok(format!(
        "CREATE TABLE {} ({body})",
        qualified(schema, table)
    ))
}

/// The name of a column and its type, as `CREATE TABLE` and `ADD COLUMN` take them. `invalid_name` as
/// [`create_table`].
pub fn column_with_type(column: &Column) -> Result<String, PgError> {
    check_column_name(&column.name).map_err(|error| error.in_column(&column.name))?;
    // `text[]` is the first of them; the server takes six.
    let more = match column.is_nested() {
        true => "[]".repeat(usize::from(column.dimensions.min(6)) - 1),
        false => String::new(),
    };
    let name = quote_ident(&column.name);
    Ok(format!("{name} {}{more}", column.type_text))
}

/// `COMMENT ON TABLE …` if there is a comment, and `COMMENT ON COLUMN …` for each column that has
/// one.
pub fn comments(
    schema: &str,
    table: &str,
    comment: Option<&str>,
    columns: &[Column],
) -> Vec<String> {
    let table = qualified(schema, table);
    let of_table =
        comment.map(|text| format!("COMMENT ON TABLE {table} IS {}", quote_literal(text)));
    let of_column = |column: &Column| {
        let (name, text) = (quote_ident(&column.name), column.comment.as_deref()?);
        Some(format!(
            "COMMENT ON COLUMN {table}.{name} IS {}",
            quote_literal(text)
        ))
    };
    let of_columns = columns.iter().filter_map(of_column);
    of_table.into_iter().chain(of_columns).collect()
}

fn name_list(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| quote_ident(name)).collect();
    quoted.join(", ")
}

/// A user type that a column needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeStatement {
    /// The type's schema.
    pub schema: String,
    /// The type's name.
    pub name: String,
    /// The statement that makes it, or a comment where none is known.
    pub sql: String,
    /// True for enums and domains, which may be created without asking; composites, ranges, the types of extensions, and
    /// domains with a [`problem`](Self::problem), are for a person to make.
    pub is_automatic: bool,
    /// Why a person has to read the statement before it is run: it makes a domain with a check or a default that may do
    /// anything, or a type in a schema of the server.
    pub problem: Option<String>,
}

/// The user types of a type, those it is made of first, each once. A description that contradicts itself has two types of
/// one name.
pub fn types_of(ty: &PgType) -> Vec<TypeStatement> {
    let mut found = Vec::new();
    collect(ty, &mut found);
    found
}

fn collect(ty: &PgType, found: &mut Vec<TypeStatement>) {
    if ty.is_builtin() {
        return;
    }
    ty.parts().into_iter().for_each(|part| collect(part, found));
    let Some(sql) = create_type(ty) else {
        // Arrays and multiranges come with their element and their range.
        return;
    };
    let is_same = |other: &TypeStatement| other.schema == ty.schema && other.name == ty.name;
    if found.iter().any(|other| is_same(other) && other.sql == sql) {
        return;
    }
    let problem = problem_of(ty);
    found.push(TypeStatement {
        schema: ty.schema.clone(),
        name: ty.name.clone(),
        sql,
        is_automatic: problem.is_none()
            && matches!(ty.kind, Kind::Enum { .. } | Kind::Domain { .. }),
        problem,
    });
}

/// Types of well-known extensions.
const EXTENSION_TYPES: [&str; 47] = [
    "agtype",
    "box2d",
    "box3d",
    "citext",
    "cube",
    "ean13",
    "earth",
    "geography",
    "geometry",
    "graphid",
    "halfvec",
    "hll",
    "hstore",
    "ip4",
    "ip4r",
    "ip6",
    "ip6r",
    "ipaddress",
    "iprange",
    "isbn",
    "isbn13",
    "ismn",
    "ismn13",
    "issn",
    "issn13",
    "lo",
    "lquery",
    "ltree",
    "ltxtquery",
    "nvarchar2",
    "query_int",
    "raster",
    "roaringbitmap",
    "seg",
    "semver",
    "sparsevec",
    "spheroid",
    "tdigest",
    "topogeometry",
    "uint1",
    "uint2",
    "uint4",
    "uint8",
    "upc",
    "varchar2",
    "vector",
    "rum_distance_query",
];

const THROUGH: &str = "a source could make the target run anything through";

fn problem_of(ty: &PgType) -> Option<String> {
    // Their types belong to the server, and hide those that others mean.
    if ty.schema.starts_with("pg_") || ty.schema == "information_schema" {
        return Some("its schema belongs to the server".to_owned());
    }
    // CREATE EXTENSION would fail from then on.
    let is_plain = matches!(ty.kind, Kind::Enum { .. } | Kind::Domain { .. });
    if is_plain && EXTENSION_TYPES.contains(&ty.name.as_str()) {
        return Some("an extension has a type of this name".to_owned());
    }
    let Kind::Domain {
        base,
        base_text,
        checks,
        default,
        ..
    } = &ty.kind
    else {
        return None;
    };
    let is_enum = matches!(base.element().kind, Kind::Enum { .. });
    let base = is_enum.then_some(base_text.as_str());
    let mut checks = checks.iter();
    let of_checks = checks.find_map(|check| {
        let problem = written::problem_of_check(&check.definition, base)?;
        let name = quote_ident(&check.name);
        Some(format!("{THROUGH} its check {name}: {problem}"))
    });
    let of_default = || {
        let problem = written::problem_of_default(default.as_deref()?, base)?;
        Some(format!("{THROUGH} its default: {problem}"))
    };
    of_checks.or_else(of_default)
}

/// The statements that make the types the target lacks, in order.
///
/// `exists(schema, name)` says what the target has. `missing_type` with the statement to run if
/// one of them is not made automatically.
pub fn missing_types(
    ty: &PgType,
    exists: impl Fn(&str, &str) -> bool,
) -> Result<Vec<String>, PgError> {
    let missing = types_of(ty)
        .into_iter()
        .filter(|statement| !exists(&statement.schema, &statement.name));
    missing
        .map(|statement| {
            if statement.is_automatic {
                return Ok(statement.sql);
            }
            let name = qualified(&statement.schema, &statement.name);
            Err(PgError::new(
                Owner::Schema,
                "missing_type",
                format!("the target does not have the type {name}"),
            )
            .hint(format!("run on the target: {}", statement.sql)))
        })
        .collect()
}

/// The statement that makes one type. `None` for types that come with another.
fn create_type(ty: &PgType) -> Option<String> {
    let name = qualified(&ty.schema, &ty.name);
    Some(match &ty.kind {
        Kind::Array { .. } | Kind::Multirange { .. } => return None,
        Kind::Enum { labels } => {
            let labels: Vec<_> = labels.iter().map(|label| quote_literal(label)).collect();
            format!("CREATE TYPE {name} AS ENUM ({})", labels.join(", "))
        }
        Kind::Domain {
            base_text,
            not_null,
            checks,
            default,
            ..
        } => {
            let mut sql = format!("CREATE DOMAIN {name} AS {base_text}");
            if let Some(default) = default {
                sql.push_str(&format!(" DEFAULT {}", written::with_escapes(default)));
            }
            if *not_null {
                sql.push_str(" NOT NULL");
            }
            for check in checks {
                let constraint = quote_ident(&check.name);
                let definition = written::with_escapes(&check.definition);
                sql.push_str(&format!(" CONSTRAINT {constraint} {definition}"));
            }
            sql
        }
        Kind::Composite { fields } => {
            let fields: Vec<_> = fields
                .iter()
                .map(|field| format!("{} {}", quote_ident(&field.name), field.type_text))
                .collect();
            format!("CREATE TYPE {name} AS ({})", fields.join(", "))
        }
        Kind::Range { subtype } => {
            let subtype = match subtype.schema.as_str() {
                "pg_catalog" => quote_ident(&subtype.name),
                schema => qualified(schema, &subtype.name),
            };
            format!("CREATE TYPE {name} AS RANGE (subtype = {subtype})")
        }
        Kind::Base { .. } | Kind::Other => {
            format!("-- install the extension that provides the type {name}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::model::{Check, CompositeField};

    fn user(oid: u32, name: &str, kind: Kind) -> PgType {
        PgType {
            oid,
            schema: "app".into(),
            name: name.into(),
            kind,
        }
    }

    #[test]
    fn a_table_is_written_with_exact_types() {
        let mut id = builtin::INT8.column("id");
        id.not_null = true;
        let mut total = builtin::NUMERIC.column("Total");
        total.type_text = "numeric(18,4)".into();
        total.comment = Some("it's \\ net".into());
        let columns = [id, total];
        let sql = create_table("raw", "order", &columns, &["id".into()]).expect("names");
        assert_eq!(
            sql,
            "CREATE TABLE raw.\"order\" (\n    id bigint NOT NULL,\n    \"Total\" numeric(18,4),\n    PRIMARY KEY (id)\n)"
        );
        assert_eq!(
            comments("raw", "order", Some("o'r"), &columns),
            [
                "COMMENT ON TABLE raw.\"order\" IS 'o''r'",
                "COMMENT ON COLUMN raw.\"order\".\"Total\" IS E'it''s \\\\ net'",
            ]
        );
        assert_eq!(
            create_table("raw", "t", &[], &[]).expect("names"),
            "CREATE TABLE raw.t ()"
        );
        let long = "x".repeat(64);
        assert_eq!(
            create_table("raw", &long, &[], &[]).map_err(|e| e.code),
            Err("invalid_name")
        );
    }

    #[test]
    fn types_come_in_order_and_a_missing_composite_is_refused_with_its_statement() {
        let labels = vec!["sad".into(), "o'k".into()];
        let mood = user(20_000, "mood", Kind::Enum { labels });
        let domain = user(
            20_002,
            "glad",
            Kind::Domain {
                base: Box::new(mood.clone()),
                typmod: -1,
                base_text: "app.mood".into(),
                not_null: true,
                checks: vec![Check {
                    name: "Glad".into(),
                    definition: "CHECK ((VALUE > 'sad'::app.mood))".into(),
                }],
                default: Some("'o''k'::app.mood".into()),
            },
        );
        let sql = missing_types(&domain, |_, _| false).expect("automatic");
        assert_eq!(
            sql,
            [
                "CREATE TYPE app.mood AS ENUM ('sad', 'o''k')",
                "CREATE DOMAIN app.glad AS app.mood DEFAULT 'o''k'::app.mood NOT NULL \
                 CONSTRAINT \"Glad\" CHECK ((VALUE > 'sad'::app.mood))",
            ]
        );
        let fields = vec![CompositeField {
            name: "g".into(),
            typmod: -1,
            type_text: "app.glad".into(),
            ty: domain,
        }];
        let composite = user(20_004, "pair", Kind::Composite { fields });
        assert_eq!(types_of(&composite).len(), 3);
        let error = missing_types(&composite, |_, name| name != "pair").expect_err("refused");
        assert_eq!(error.code, "missing_type");
        assert!(
            error
                .hint
                .expect("hint")
                .contains("CREATE TYPE app.pair AS (g app.glad)")
        );
    }
}
