//! Which field fits which column: exact refusals, widenings and casts.

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use rapidbyte_pg::builtin::{self as pg, Builtin, to_numeric_typmod};
use rapidbyte_pg::fit::{column_for, plain};
use rapidbyte_pg::form::METADATA_KEY;
use rapidbyte_pg::model::CompositeField;
use rapidbyte_pg::{Column, Fit, Form, Kind, PgType, column_of, field, fit, form};
use rapidbyte_wire::types::parse_field;

fn with(builtin: Builtin, typmod: i32) -> Column {
    Column {
        typmod,
        type_text: builtin.ty().text(typmod),
        ..builtin.column("c")
    }
}

fn numeric(precision: u16, scale: i16) -> Column {
    with(pg::NUMERIC, to_numeric_typmod(precision, scale))
}

fn composite(oid: u32, fields: &[(&str, Column)]) -> Column {
    let part = |(name, column): &(&str, Column)| CompositeField {
        name: (*name).into(),
        typmod: column.typmod,
        type_text: column.type_text.clone(),
        ty: column.ty.clone(),
    };
    let fields = fields.iter().map(part).collect();
    user(oid, "pair", Kind::Composite { fields })
}

fn user(oid: u32, name: &str, kind: Kind) -> Column {
    let ty = PgType {
        oid,
        schema: "app".into(),
        name: name.into(),
        kind,
    };
    let text = ty.text(-1);
    Column::new("c", ty, text)
}

fn labels(labels: &[&str]) -> Column {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    user(20_000, "mood", Kind::Enum { labels })
}

fn of(source: &Column, native: bool, target: &Column) -> Fit {
    fit(&field(source, native), target).expect("metadata")
}

/// Both forms give the same answer.
fn both(source: &Column, target: &Column) -> Fit {
    let native = of(source, true, target);
    let portable = of(source, false, target);
    assert_eq!(
        std::mem::discriminant(&native),
        std::mem::discriminant(&portable),
        "{native:?} {portable:?}"
    );
    native
}

fn refused(fit: Fit, part: &str) {
    assert!(
        matches!(&fit, Fit::Refused(reason) if reason.contains(part)),
        "{fit:?}"
    );
}

#[test]
fn a_numeric_that_the_server_would_round_is_refused() {
    assert_eq!(both(&numeric(12, 2), &numeric(12, 2)), Fit::Direct);
    for target in [numeric(18, 4), with(pg::NUMERIC, -1)] {
        assert!(!matches!(both(&numeric(12, 2), &target), Fit::Refused(_)));
    }
    refused(both(&numeric(12, 2), &numeric(12, 1)), "round");
    refused(both(&numeric(12, 2), &numeric(12, 3)), "before the point");
    refused(
        of(&with(pg::NUMERIC, -1), true, &numeric(38, 10)),
        "no limit",
    );
    assert_eq!(
        of(&with(pg::NUMERIC, -1), true, &with(pg::NUMERIC, -1)),
        Fit::Direct
    );
    assert!(matches!(
        of(&with(pg::NUMERIC, -1), false, &numeric(38, 10)),
        Fit::Cast(_)
    ));
}

#[test]
fn times_that_the_server_would_round_are_refused() {
    for builtin in [pg::TIMESTAMP, pg::TIMESTAMPTZ, pg::TIME] {
        refused(both(&with(builtin, -1), &with(builtin, 3)), "round");
        refused(both(&with(builtin, 6), &with(builtin, 5)), "round");
        for (from, to) in [(3, 3), (3, 5), (3, -1), (-1, 6)] {
            assert_eq!(both(&with(builtin, from), &with(builtin, to)), Fit::Direct);
        }
    }
    let interval = |fields: i32, digits: i32| with(pg::INTERVAL, (fields << 16) | digits);
    assert_eq!(
        both(&interval(0x7fff, 3), &with(pg::INTERVAL, -1)),
        Fit::Direct
    );
    refused(both(&with(pg::INTERVAL, -1), &interval(0x7fff, 3)), "round");
    refused(
        both(&with(pg::INTERVAL, -1), &interval(4, 0xffff)),
        "leave out",
    );
    refused(of(&with(pg::BIT, 5), true, &with(pg::BIT, 4)), "lengths");
    refused(
        of(&with(pg::VARBIT, 5), true, &with(pg::VARBIT, 4)),
        "fewer bits",
    );
    refused(
        both(&with(pg::TIMESTAMP, -1), &with(pg::TIMESTAMPTZ, -1)),
        "",
    );
}

#[test]
fn integers_and_floats_only_widen() {
    let ints = [pg::INT2, pg::INT4, pg::INT8];
    for (from, source) in ints.iter().enumerate() {
        for (to, target) in ints.iter().enumerate() {
            let found = both(&source.column("c"), &target.column("c"));
            match from.cmp(&to) {
                std::cmp::Ordering::Less => assert!(matches!(found, Fit::Widened(_))),
                std::cmp::Ordering::Equal => assert_eq!(found, Fit::Direct),
                std::cmp::Ordering::Greater => refused(found, "narrower"),
            }
        }
        assert!(matches!(
            both(&source.column("c"), &pg::NUMERIC.column("c")),
            Fit::Widened(_)
        ));
    }
    assert!(matches!(
        both(&pg::INT8.column("c"), &numeric(19, 0)),
        Fit::Widened(_)
    ));
    refused(both(&pg::INT8.column("c"), &numeric(19, 1)), "narrower");
    assert!(matches!(
        both(&pg::FLOAT4.column("c"), &pg::FLOAT8.column("c")),
        Fit::Widened(_)
    ));
    refused(
        both(&pg::FLOAT8.column("c"), &pg::FLOAT4.column("c")),
        "fewer digits",
    );
    refused(
        both(&pg::FLOAT8.column("c"), &pg::NUMERIC.column("c")),
        "does not become",
    );
    refused(
        both(&pg::INT8.column("c"), &pg::TEXT.column("c")),
        "does not become",
    );
}

#[test]
fn text_goes_into_text_and_is_cast_to_everything_else() {
    let text = pg::TEXT.column("c");
    assert_eq!(both(&with(pg::VARCHAR, 24), &text), Fit::Direct);
    assert_eq!(
        both(&with(pg::VARCHAR, 24), &with(pg::VARCHAR, 24)),
        Fit::Direct
    );
    for target in [with(pg::VARCHAR, 24), with(pg::BPCHAR, 24)] {
        let found = both(&text, &target);
        assert!(matches!(&found, Fit::Widened(note) if note.contains("20 characters")));
    }
    let date = pg::DATE.column("c");
    assert_eq!(both(&text, &date), Fit::Cast("date".into()));
    assert!(matches!(
        both(&text, &pg::JSONB.column("c")),
        Fit::Checked(note) if note.contains("keys")
    ));
    assert_eq!(both(&labels(&["a"]), &labels(&["b", "a"])), Fit::Direct);
    refused(both(&labels(&["a'"]), &labels(&["b"])), "ADD VALUE 'a'''");
    assert_eq!(both(&labels(&["a"]), &text), Fit::Direct);
    assert_eq!(
        both(&pg::JSONB.column("c"), &pg::JSON.column("c")),
        Fit::Direct
    );
    assert!(matches!(
        both(&pg::JSON.column("c"), &pg::JSONB.column("c")),
        Fit::Widened(_)
    ));
    // A type without binary functions travels as text and is cast back.
    let class = Column::new(
        "c",
        PgType {
            oid: 2205,
            name: "regclass".into(),
            ..pg::OID.ty()
        },
        "regclass",
    );
    assert_eq!(form(&class, true), Form::TextCast);
    assert_eq!(both(&class, &class), Fit::Cast("regclass".into()));
    assert_eq!(both(&class, &text), Fit::Direct);
}

#[test]
fn user_types_are_one_by_schema_and_name_and_by_shape() {
    let pair = |oid, scale| composite(oid, &[("a", pg::INT4.column("")), ("b", numeric(9, scale))]);
    let native = |source: &Column, target: &Column| of(source, true, target);
    assert_eq!(native(&pair(20_001, 2), &pair(30_001, 2)), Fit::Direct);
    refused(native(&pair(20_001, 2), &pair(30_001, 1)), "round");
    let mut other = pair(20_001, 2);
    other.ty.schema = "public".into();
    refused(native(&pair(20_001, 2), &other), "different types");
    let renamed = composite(20_001, &[("a", pg::INT4.column("")), ("c", numeric(9, 2))]);
    refused(native(&pair(20_001, 2), &renamed), "fields");
    let changed = composite(20_001, &[("a", pg::INT8.column("")), ("b", numeric(9, 2))]);
    refused(native(&pair(20_001, 2), &changed), "int4 and int8");
    let array = |element: Column| {
        let element = Box::new(element.ty);
        user(20_009, "_pair", Kind::Array { element })
    };
    assert_eq!(
        native(&array(pair(20_001, 2)), &array(pair(30_001, 2))),
        Fit::Direct
    );
    refused(
        native(&array(pair(20_001, 2)), &array(pair(30_001, 1))),
        "round",
    );
    refused(
        native(&array(pg::INT4.column("c")), &array(pg::INT8.column("c"))),
        "different",
    );
    // A domain is its base, in both directions.
    let domain = |base: Column| {
        let (typmod, base_text) = (base.typmod, base.type_text.clone());
        let base = Box::new(base.ty);
        let (not_null, checks, default) = (false, vec![], None);
        user(
            20_010,
            "d",
            Kind::Domain {
                base,
                typmod,
                base_text,
                not_null,
                checks,
                default,
            },
        )
    };
    assert_eq!(both(&domain(numeric(9, 2)), &numeric(9, 2)), Fit::Direct);
    refused(both(&numeric(9, 3), &domain(numeric(9, 2))), "round");
    let mut computed = pg::INT4.column("c");
    computed.generated = rapidbyte_pg::model::Generated::Stored;
    refused(both(&pg::INT4.column("c"), &computed), "computes");
}

#[test]
fn fields_from_elsewhere_have_a_type() {
    for (name, expected) in [
        ("int8", "smallint"),
        ("uint8", "smallint"),
        ("uint16", "integer"),
        ("uint32", "bigint"),
        ("uint64", "numeric(20,0)"),
        ("float32", "real"),
        ("string", "text"),
        ("large_binary", "bytea"),
        ("fixed_binary(3)", "bytea"),
        ("uuid", "uuid"),
        ("json", "json"),
        ("time(ns)", "time without time zone"),
        ("timestamp(s)", "timestamp without time zone"),
        ("timestamp(ns, Europe/Berlin)", "timestamp with time zone"),
        ("duration(ms)", "interval"),
        ("interval", "interval"),
        ("decimal(76, 10)", "numeric(76,10)"),
        ("list<list<decimal(5, 1)>>", "numeric(5,1)[]"),
        ("null", "text"),
    ] {
        let field = parse_field("c", name, true).expect(name);
        let column = plain(&field).expect(name);
        assert_eq!(column.type_text, expected, "{name}");
        // It fits the column that is made for it, which has no limit where its type text has none.
        let created = Column {
            typmod: if expected.contains('(') {
                column.typmod
            } else {
                -1
            },
            ..column
        };
        let found = fit(&field, &created).expect("no metadata");
        assert!(
            matches!(found, Fit::Direct | Fit::Widened(_)),
            "{name}: {found:?}"
        );
    }
    let ms = Field::new("c", DataType::Timestamp(TimeUnit::Millisecond, None), true);
    assert_eq!(fit(&ms, &with(pg::TIMESTAMP, 3)), Ok(Fit::Direct));
    refused(fit(&ms, &with(pg::TIMESTAMP, 2)).expect("fit"), "round");
    for name in ["struct<a: int64>", "map<string, int64>"] {
        let field = parse_field("c", name, true).expect(name);
        refused(fit(&field, &pg::TEXT.column("c")).expect("fit"), "JSON");
    }
    let months = Field::new("c", DataType::Interval(IntervalUnit::YearMonth), true);
    assert!(plain(&months).is_err());
}

#[test]
fn hostile_metadata_is_an_error_and_a_changed_field_loses_it() {
    let field = |json: String| {
        let metadata = std::collections::HashMap::from([(METADATA_KEY.to_owned(), json)]);
        Field::new("c", DataType::Int64, true).with_metadata(metadata)
    };
    for json in [
        "",
        "{}",
        "null",
        "[1]",
        &"[".repeat(100_000),
        &deep(1000),
        &deep(40),
    ] {
        let error = column_of(&field(json.to_owned())).expect_err("hostile");
        assert_eq!(error.code, "invalid_metadata");
        assert_eq!(
            fit(&field(json.to_owned()), &pg::INT8.column("c")),
            Err(error)
        );
    }
    assert!(column_of(&field(deep(30))).is_ok());
    // An int4 column that became Int64 on its way is a plain Int64.
    let json = serde_json::to_string(&pg::INT4.column("c")).expect("JSON");
    let changed = column_for(&field(json)).expect("metadata").expect("a type");
    assert_eq!(changed.type_text, "bigint");
}

/// An `int4` below `levels` domains.
fn deep(levels: usize) -> String {
    let mut ty = pg::INT4.ty();
    for _ in 0..levels {
        let base_text = ty.text(-1);
        let kind = Kind::Domain {
            base: Box::new(ty),
            typmod: -1,
            base_text,
            not_null: false,
            checks: Vec::new(),
            default: None,
        };
        ty = user(20_000, "d", kind).ty;
    }
    serde_json::to_string(&Column::new("c", ty, "app.d")).expect("JSON")
}

#[test]
fn types_that_take_no_values_are_refused_wherever_they_stand() {
    let internal = |oid, name: &str, kind| PgType {
        oid,
        schema: "pg_catalog".into(),
        name: name.into(),
        kind,
    };
    let send = rapidbyte_pg::model::Send::Binary;
    let tree = internal(194, "pg_node_tree", Kind::Base { send });
    let column = Column::new("c", tree.clone(), "pg_node_tree");
    refused(both(&column, &column), "values of pg_node_tree");
    let array = Kind::Array {
        element: Box::new(tree.clone()),
    };
    let array = user(20_001, "_x", array);
    refused(both(&array, &array), "values of pg_node_tree");
    let pair = composite(
        20_003,
        &[("a", pg::INT4.column("a")), ("b", column.clone())],
    );
    refused(both(&pair, &pair), "values of pg_node_tree");
    // As text it can be kept.
    assert!(!matches!(
        of(&column, false, &pg::TEXT.column("c")),
        Fit::Refused(_)
    ));
}

#[test]
fn types_whose_empty_value_has_no_binary_form_travel_as_text() {
    for (oid, name) in [(22, "int2vector"), (30, "oidvector"), (3615, "tsquery")] {
        let send = rapidbyte_pg::model::Send::Binary;
        let ty = PgType {
            oid,
            schema: "pg_catalog".into(),
            name: name.into(),
            kind: Kind::Base { send },
        };
        let column = Column::new("c", ty, name);
        assert_eq!(both(&column, &column), Fit::Cast(name.into()));
    }
}
