//! The tables that are copied, made by the server from the number of each row.

use std::fmt::Write;

/// What a table looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A: seven mixed columns, about 94 bytes a row in binary COPY.
    Narrow,
    /// B: the types that are dear to decode, one value in ten NULL.
    Hard,
    /// C: a hundred columns.
    Wide,
}

impl Workload {
    pub const ALL: [Self; 3] = [Self::Narrow, Self::Hard, Self::Wide];

    /// How it is called on the command line and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::Hard => "hard",
            Self::Wide => "wide",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }

    /// `CREATE TABLE` for a table of this name.
    pub fn create(self, table: &str) -> String {
        let columns: Vec<String> = self
            .columns()
            .into_iter()
            .map(|column| format!("{} {}", column.name, column.declared))
            .collect();
        format!("CREATE TABLE {table} ({})", columns.join(", "))
    }

    /// Fills the table with `rows` rows, the same each time.
    pub fn fill(self, table: &str, rows: u64) -> String {
        let mut select = String::new();
        for (at, column) in self.columns().iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let value = &column.value;
            // Every column has its NULLs in rows of its own.
            let _ = match column.has_nulls {
                true => write!(
                    select,
                    "{comma}CASE WHEN (i + {at}) % 10 = 0 THEN NULL ELSE {value} END"
                ),
                false => write!(select, "{comma}{value}"),
            };
        }
        format!("INSERT INTO {table} SELECT {select} FROM generate_series(1, {rows}) AS i")
    }

    fn columns(self) -> Vec<Column> {
        match self {
            Self::Narrow => vec![
                column("id", "bigint NOT NULL", "i"),
                column("name", "text NOT NULL", "'customer ' || i"),
                column("amount", "double precision NOT NULL", "i * 0.37"),
                column("quantity", "integer NOT NULL", "i % 1000"),
                column("active", "boolean NOT NULL", "i % 3 = 0"),
                column(
                    "created_at",
                    "timestamptz NOT NULL",
                    "timestamptz '2020-01-01 00:00:00Z' + i * interval '17 seconds'",
                ),
                column("note", "text NOT NULL", "substr(md5(i::text), 1, 20)"),
            ],
            Self::Hard => hard(),
            Self::Wide => (0..100).map(wide).collect(),
        }
    }
}

struct Column {
    name: String,
    declared: &'static str,
    /// An expression of the row's number `i`.
    value: String,
    has_nulls: bool,
}

fn column(name: &str, declared: &'static str, value: &str) -> Column {
    Column {
        name: name.to_owned(),
        declared,
        value: value.to_owned(),
        has_nulls: false,
    }
}

fn hard() -> Vec<Column> {
    let mut columns = vec![
        column("id", "bigint NOT NULL", "i"),
        column(
            "price",
            "numeric(18,4)",
            "(i::bigint * 7919 % 1000000007) / 10000.0",
        ),
        column("key", "uuid", "md5(i::text)::uuid"),
        column(
            "document",
            "jsonb",
            "jsonb_build_object('id', i, 'tags', jsonb_build_array('a', i % 7, NULL), \
             'text', repeat(md5(i::text), 3), 'nested', jsonb_build_object('x', i * 0.5))",
        ),
        column(
            "labels",
            "text[]",
            "ARRAY['label ' || i % 100, NULL, 'quote \" and , comma']",
        ),
        column("day", "date", "date '2000-01-01' + (i % 10000)::int"),
        column(
            "seen_at",
            "timestamptz",
            "timestamptz '2020-01-01 00:00:00Z' + i * interval '1.000001 seconds'",
        ),
        column(
            "payload",
            "bytea",
            "decode(md5(i::text) || md5((i + 1)::text), 'hex')",
        ),
        column(
            "title",
            "text",
            r#"E'Grüße, „Welt“ — 東京 🚀 it''s "quoted"\nline ' || i"#,
        ),
    ];
    columns
        .iter_mut()
        .skip(1)
        .for_each(|column| column.has_nulls = true);
    columns
}

fn wide(at: usize) -> Column {
    let name = format!("c{at}");
    match at % 4 {
        0 => column(&name, "bigint", &format!("i * {}", at + 1)),
        1 => column(&name, "text", &format!("'value ' || (i + {at}) % 1000")),
        2 => column(&name, "double precision", &format!("i / {}.0", at + 1)),
        _ => column(
            &name,
            "timestamp",
            &format!("timestamp '2020-01-01' + (i + {at}) * interval '1 minute'"),
        ),
    }
}
