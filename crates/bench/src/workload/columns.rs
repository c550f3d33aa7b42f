//! The columns of the workloads.

/// One column of a table.
pub struct Column {
    pub name: String,
    /// Type and constraint.
    pub declared: &'static str,
    /// An expression of the row's number `i`.
    pub value: String,
    /// One value in ten is NULL.
    pub has_nulls: bool,
}

fn column(name: &str, declared: &'static str, value: &str) -> Column {
    Column {
        name: name.to_owned(),
        declared,
        value: value.to_owned(),
        has_nulls: false,
    }
}

pub fn narrow() -> Vec<Column> {
    vec![
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
    ]
}

pub fn hard() -> Vec<Column> {
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

pub fn wide(at: usize) -> Column {
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

/// A number, and 1 MiB that no codec makes smaller: one block of hashes behind the row's number.
pub fn fat() -> Vec<Column> {
    let block = "(SELECT decode(string_agg(md5(n::text), '' ORDER BY n), 'hex') \
                 FROM generate_series(1, 65536) AS n)";
    vec![
        column("id", "bigint NOT NULL", "i"),
        column(
            "payload",
            "bytea NOT NULL",
            &format!("int8send(i::bigint) || {block}"),
        ),
    ]
}
