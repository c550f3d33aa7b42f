use super::tokens::MAX_BYTES;
use super::*;

#[test]
fn names_inside_a_type_are_names_and_not_twice_the_same() {
    let labels = |labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        column(user("app", "e", Kind::Enum { labels }), "app.e", -1)
    };
    let checks = |names: &[&str]| {
        let check = |name: &&str| crate::model::Check {
            name: (*name).to_owned(),
            definition: "CHECK ((VALUE > 0))".to_owned(),
        };
        let kind = Kind::Domain {
            base: Box::new(crate::builtin::INT4.ty()),
            typmod: -1,
            base_text: "integer".to_owned(),
            not_null: false,
            checks: names.iter().map(check).collect(),
            default: None,
        };
        column(user("app", "d", kind), "app.d", -1)
    };
    let long = "x".repeat(64);
    for right in [labels(&["a", "", "it's"]), checks(&["a", "A"])] {
        assert_eq!(problem(&right), None);
    }
    let wrong = [&["a", "a"][..], &["a\0"], &[&long]];
    for names in wrong {
        assert!(problem(&labels(names)).is_some(), "{names:?}");
        assert!(problem(&checks(names)).is_some(), "{names:?}");
    }
    assert!(problem(&checks(&[""])).is_some());
    let many: Vec<String> = (0..=MAX_PARTS).map(|label| label.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(problem(&labels(&many)).is_some());
    assert_eq!(problem(&labels(&many[1..])), None);
    let commented = Column {
        comment: Some("a\0".to_owned()),
        ..labels(&["a"])
    };
    assert!(problem(&commented).is_some());
}

fn column(ty: PgType, text: &str, typmod: i32) -> Column {
    Column {
        typmod,
        ..Column::new("c", ty, text)
    }
}

fn user(schema: &str, name: &str, kind: Kind) -> PgType {
    PgType {
        oid: 20_000,
        schema: schema.into(),
        name: name.into(),
        kind,
    }
}

const BINARY: Kind = Kind::Base {
    send: crate::model::Send::Binary,
};

fn array(element: PgType) -> PgType {
    let element = Box::new(element);
    user("app", "_array", Kind::Array { element })
}

/// The texts of `format_type`.
#[test]
fn a_description_that_agrees_with_itself_has_no_problem() {
    use crate::builtin::*;
    let (interval, mood) = (
        |typmod| (INTERVAL.ty(), typmod),
        || user("app", "mood", BINARY),
    );
    for (text, (ty, typmod)) in [
        ("text", (TEXT.ty(), -1)),
        ("numeric", (NUMERIC.ty(), -1)),
        ("numeric(18,4)", (NUMERIC.ty(), to_numeric_typmod(18, 4))),
        ("numeric(3,-2)", (NUMERIC.ty(), to_numeric_typmod(3, -2))),
        ("character varying", (VARCHAR.ty(), -1)),
        ("character varying(20)", (VARCHAR.ty(), 24)),
        ("character(20)", (BPCHAR.ty(), 24)),
        ("bpchar", (BPCHAR.ty(), -1)),
        ("bit varying(3)", (VARBIT.ty(), 3)),
        ("bit(3)", (BIT.ty(), 3)),
        ("\"bit\"", (BIT.ty(), -1)),
        ("double precision", (FLOAT8.ty(), -1)),
        ("timestamp(3) with time zone", (TIMESTAMPTZ.ty(), 3)),
        (
            "timestamp(0) without time zone[]",
            (TIMESTAMP.array_ty(), 0),
        ),
        ("time with time zone", (TIMETZ.ty(), -1)),
        ("interval", interval(-1)),
        ("interval(3)", interval(0x7fff << 16 | 3)),
        ("interval day to second(3)", interval(0x1c08 << 16 | 3)),
        ("interval year", interval(4 << 16 | 0xffff)),
        ("\"char\"", (CHAR.ty(), -1)),
        ("integer[]", (INT4.array_ty(), -1)),
        ("app.mood", (mood(), -1)),
        ("app.mood[]", (array(mood()), -1)),
        (
            "app.\"Mood \"\"x\"\"; --\"[]",
            (array(user("app", "Mood \"x\"; --", BINARY)), -1),
        ),
        ("app.\"mood\"", (mood(), -1)),
        ("grün.größe", (user("grün", "größe", BINARY), -1)),
        (
            "public.geometry(Point,4326)",
            (user("public", "geometry", BINARY), 1_107_460),
        ),
        ("public.vector(3)", (user("public", "vector", BINARY), 3)),
    ] {
        assert_eq!(problem(&column(ty, text, typmod)), None, "{text}");
    }
}

#[test]
fn texts_are_the_type_that_the_description_has_and_nothing_else() {
    for text in [
        "",
        " ",
        "text;DROP TABLE t",
        "text); DROP TABLE t; CREATE TABLE z(a int",
        "text check(1/0>1)",
        "text check(a)",
        "text default 1",
        "text not null",
        "text primary key",
        "text collate \"C\"",
        "text references t",
        "text, b text",
        "text --",
        "text /* */",
        "text(",
        "text)",
        "text(1)",
        "text()",
        "pg_catalog.text",
        "text.text",
        "\"\"",
        "\"text",
        "text[",
        "text[]",
        "text[3]",
        "setof text",
        "text%TYPE",
        "text'x'",
        "$1",
        "U&\"text\"",
        "TEXT",
        "citext",
        "integer",
        "text\u{0}",
        "text\\",
    ] {
        let text_of = column(crate::builtin::TEXT.ty(), text, -1);
        assert!(problem(&text_of).is_some(), "{text}");
    }
    for text in [
        "mood",
        "app.mood(3)",
        "App.mood",
        "app.MOOD",
        "app.other",
        "app.mood[]",
        "app..mood",
    ] {
        let mood = column(user("app", "mood", BINARY), text, -1);
        assert!(problem(&mood).is_some(), "{text}");
    }
    assert!(tokens(&"a".repeat(MAX_BYTES + 1)).is_none());
    assert!(is_name("pg_catalog.\"de-x-icu\"") && !is_name("\"C\" \"D\"") && !is_name("\"C\"; x"));
}

#[test]
fn a_description_that_disagrees_with_itself_has_a_problem() {
    use crate::builtin::*;
    let domain = |base: PgType, typmod: i32, text: &str| {
        let kind = Kind::Domain {
            base: Box::new(base),
            typmod,
            base_text: text.into(),
            not_null: false,
            checks: Vec::new(),
            default: None,
        };
        user("app", "d", kind)
    };
    let composite = |typmod: i32| {
        let field = crate::model::CompositeField {
            name: "f".into(),
            typmod,
            type_text: "numeric(4,2)".into(),
            ty: NUMERIC.ty(),
        };
        user(
            "app",
            "pair",
            Kind::Composite {
                fields: vec![field],
            },
        )
    };
    let right = domain(NUMERIC.ty(), to_numeric_typmod(4, 2), "numeric(4,2)");
    assert_eq!(problem(&column(right.clone(), "app.d", -1)), None);
    let right = composite(to_numeric_typmod(4, 2));
    assert_eq!(problem(&column(right.clone(), "app.pair", -1)), None);
    let renamed = |ty: PgType, name: &str| PgType {
        name: name.into(),
        ..ty
    };
    for (ty, text, typmod) in [
        (TIMESTAMP.ty(), "timestamp(0) without time zone", -1),
        (TIMESTAMP.ty(), "timestamp without time zone", 0),
        (TIMESTAMP.ty(), "timestamp(7) without time zone", 7),
        (NUMERIC.ty(), "numeric(4,2)", to_numeric_typmod(4, 3)),
        (VARCHAR.ty(), "character varying(3)", 8),
        (VARCHAR.ty(), "character varying(0)", 4),
        (INT4.ty(), "bigint", -1),
        (INT4.ty(), "integer", 3),
        (INT4.ty(), "integer", -2),
        (BIT.ty(), "bit", -1),
        (INTERVAL.ty(), "interval(3)", 4 << 16 | 3),
        (INT4.array_ty(), "integer", -1),
        (array(array(INT4.ty())), "integer[]", -1),
        (renamed(INT4.ty(), "int8"), "integer", -1),
        (
            PgType {
                schema: "app".into(),
                ..INT4.ty()
            },
            "integer",
            -1,
        ),
        (
            PgType {
                kind: Kind::Other,
                ..INT4.ty()
            },
            "integer",
            -1,
        ),
        (domain(NUMERIC.ty(), -1, "numeric(4,2)"), "app.d", -1),
        (domain(INT4.ty(), -1, "bigint"), "app.d", -1),
        (domain(INT4.ty(), -1, "integer"), "app.d", 4),
        (composite(-1), "app.pair", -1),
        (array(composite(-1)), "app.pair[]", -1),
        (
            user("app", &"n".repeat(64), BINARY),
            &format!("app.{}", "n".repeat(64)),
            -1,
        ),
    ] {
        assert!(
            problem(&column(ty.clone(), text, typmod)).is_some(),
            "{text} {typmod} {ty:?}"
        );
    }
}

#[test]
fn checks_compute_and_do_nothing_else() {
    for text in [
        "CHECK ((VALUE > 0))",
        "CHECK (((VALUE >= '-5'::integer) AND (VALUE <= 10)))",
        "CHECK (((VALUE)::text = ANY ((ARRAY['a'::character varying, 'b''c'::character varying])::text[])))",
        "CHECK ((VALUE ~ '^[0-9]{3}; DROP'::text))",
        "CHECK ((VALUE ~ E'^\\\\d+\\'$'::text))",
        "CHECK ((VALUE !~~* '%x%'::text))",
        "CHECK (((length(btrim((VALUE)::text)) > 0) OR (VALUE IS NULL)))",
        "CHECK ((VALUE > 'sad'::app.mood))",
        "CHECK ((VALUE COLLATE \"C\" < 'x'::text))",
        "CHECK ((VALUE IS NOT DISTINCT FROM 1.5))",
        "CHECK (\nCASE\n    WHEN (VALUE > 0) THEN true\n    ELSE false\nEND)",
        "CHECK (((VALUE)::numeric(10,2) <> B'1'::\"bit\"))",
        "CHECK ((VALUE <@ ARRAY[1, 2]))",
        "CHECK ((\"substring\"((VALUE)::text, 1, 2) = 'DE'::text))",
        "CHECK ((SUBSTRING(VALUE FROM 1 FOR 2) = 'DE'::text))",
        "CHECK ((TRIM(BOTH FROM VALUE) <> ''::text))",
        "CHECK ((EXTRACT(year FROM VALUE) > (1900)::numeric))",
        "CHECK ((VALUE ? 'a'::text))",
        "CHECK ((VALUE ~ '^\\d{5}$'::text))",
        "CHECK ((VALUE = '\\'::text))",
        "CHECK ((VALUE ~ similar_to_escape('[A-Z]%'::text)))",
        "CHECK ((VALUE ~ similar_escape('[A-Z]%'::text, NULL::text)))",
        "CHECK (((VALUE)::text ~ ANY (ARRAY['^a+$'::text, '^b{3}$'::text])))",
        "CHECK (((VALUE ~* '^x'::text) AND (VALUE !~ 'y$'::text)))",
        "CHECK (regexp_like(VALUE, '^(a+)+$'::text, 'i'::text))",
        "CHECK ((length(replace((VALUE)::text, '-'::text, ''::text)) = 10))",
        "CHECK ((replace(VALUE, 'ab'::text, '-'::text) <> ''::text))",
    ] {
        assert!(problem_of_check(text, Some("app.mood")).is_none(), "{text}");
    }
    for text in [
        "",
        "CHECK",
        "CHECK ()",
        "CHECK (VALUE",
        "CHECK (1<2);DROP TABLE z",
        "CHECK (1<2) CHECK (2<3)",
        "CHECK (pg_sleep(9) IS NULL)",
        "CHECK (app.f(VALUE))",
        "CHECK ((('(77,x)'::public.comp)::integer > 0))",
        "CHECK ((VALUE = ('x'::comp)))",
        "CHECK ((VALUE > ('pg_authid'::regclass)::oid))",
        "CHECK ((VALUE = '\\'' OR f(VALUE)))",
        "CHECK (\"app\".length(VALUE))",
        "CHECK (\"Length\"(VALUE))",
        "CHECK ((SELECT 1) = 1)",
        "CHECK (VALUE OPERATOR(app.=) 1)",
        "CHECK (VALUE = $1)",
        "CHECK (VALUE = $$a$$)",
        "CHECK (1 --\n)",
        "CHECK (1 /* */)",
        "CHECK (VALUE = U&'a')",
        "CHECK (x > 0)",
        "CHECK ((VALUE > 0)) NOT VALID",
        "CHECK (VALUE === 1)",
        "CHECK (VALUE > 0) NOT NULL",
        "CHECK (1) , (2)",
        "CHECK (query_to_xml('DELETE FROM t', true, true, '') IS NULL)",
        "DEFAULT (1)",
        "CHECK (ARRAY(SELECT 1))",
        "CHECK (VALUE::regclass.x.y)",
        "CHECK ([VALUE)]",
        "CHECK (value(1))",
        r"CHECK ((VALUE ~ '^(.*)\1$'::text))",
        r"CHECK ((VALUE ~ E'^(.*)\\1$'::text))",
        r"CHECK ((VALUE ~ E'^(.*)\1341$'::text))",
        r"CHECK ((VALUE ~ ANY (ARRAY['a'::text, '(a)\1'::text])))",
        r"CHECK ((VALUE ~ similar_to_escape('(a*)\1'::text)))",
        r"CHECK ((VALUE SIMILAR TO '(a*)\1'))",
        r"CHECK ((SUBSTRING(VALUE FROM '(a)\1'::text) IS NULL))",
        "CHECK ((\"substring\"(VALUE, '(a)\\1'::text) IS NULL))",
        r"CHECK (regexp_like(VALUE, '(a)\1'::text))",
        "CHECK (regexp_like(VALUE, 'a'::text, 'b'::text))",
        "CHECK ((VALUE ~ '(a?b?){255}c'::text))",
        "CHECK ((VALUE ~ ('(a?b?)'::text || '{255}c'::text)))",
        "CHECK (('aaaa'::text ~ VALUE))",
        "CHECK ((VALUE SIMILAR TO VALUE))",
        "CHECK ((VALUE ~ lower('A'::text)))",
        "CHECK ((replace(VALUE, 'a'::text, 'aa'::text) <> ''::text))",
        "CHECK ((replace(VALUE, 'a'::text, VALUE) <> ''::text))",
        "CHECK ((9 ^ 99999) > 0)",
        "CHECK ((('$'::jsonpath)::text = VALUE))",
        "CHECK ((('<a/>'::xml)::text = VALUE))",
    ] {
        assert!(problem_of_check(text, Some("app.mood")).is_some(), "{text}");
    }
}

#[test]
fn defaults_compute_and_do_nothing_else() {
    for text in [
        "0",
        "'o''k'::app.mood",
        "(- 1)",
        "now()",
        "(now() AT TIME ZONE 'utc'::text)",
        "gen_random_uuid()",
        "CURRENT_TIMESTAMP",
        "'{}'::jsonb",
        "(1 + 2)",
        "NULL::text",
    ] {
        assert!(
            problem_of_default(text, Some("app.mood")).is_none(),
            "{text}"
        );
    }
    for text in [
        "",
        "nextval('s'::regclass)",
        "1, 2",
        "1; DROP TABLE t",
        "'x' NOT NULL",
        "1 CHECK (f())",
        "(1",
        "1)",
        "app.f()",
    ] {
        assert!(
            problem_of_default(text, Some("app.mood")).is_some(),
            "{text}"
        );
    }
}

#[test]
fn casts_to_the_enum_below_the_domain_are_plain() {
    let base = Some("app.\"Made\"[]");
    for text in ["'{}'::app.\"Made\"[]", "ARRAY['x'::app.\"Made\"]"] {
        assert_eq!(problem_of_default(text, base), None, "{text}");
        assert!(
            problem_of_default(text, Some("app.other")).is_some(),
            "{text}"
        );
        assert!(problem_of_default(text, None).is_some(), "{text}");
    }
}

#[test]
fn backslashes_mean_the_same_in_each_session() {
    for (text, expected) in [
        (
            "CHECK ((VALUE ~ '^\\d\\'::text) OR VALUE = 'it''s')",
            "CHECK ((VALUE ~ E'^\\\\d\\\\'::text) OR VALUE = 'it''s')",
        ),
        ("E'\\d' || '\\'", "E'\\d' || E'\\\\'"),
        ("$$a\\$$", "$$a\\$$"),
    ] {
        assert_eq!(with_escapes(text), expected);
    }
}
