use serde_json::json;

use super::*;
use proptest::prelude::*;

#[test]
fn syntax_errors_say_where_and_what_to_do() {
    let cases = [
        (
            "version: 1\n\tpipeline: a\n",
            "p.yaml:2:1: not valid YAML: while scanning a plain scalar, found a tab (indent with spaces, not with tabs)",
        ),
        (
            "version: 1\npipeline: a\0b\n",
            "p.yaml:2:12: not valid YAML: a NUL character (a byte of value 0) (remove the NUL character; or save \
             the file as UTF-8 text)",
        ),
        (
            "\0version: 1\n",
            "p.yaml:1:1: not valid YAML: a NUL character (a byte of value 0) (remove the NUL character; or save \
             the file as UTF-8 text)",
        ),
        (
            "version: 1\npipeline: \"a\nsource:\n",
            "p.yaml:2:11: not valid YAML: invalid indentation in quoted scalar (close the quote \
             that opens here)",
        ),
        (
            "version: 1\npipeline: a: b\n",
            "p.yaml:2:12: not valid YAML: mapping values are not allowed in this context (put a \
             value that contains \": \" in quotes; or check the indentation, and the line before \
             for a missing colon)",
        ),
        (
            "source:\n  config: { url: ${URL} }\n",
            "p.yaml:2:19: not valid YAML: while parsing a flow mapping, did not find expected \
             ',' or '}' (put a value with ${…} between { } or [ ] in quotes: { url: \"${URL}\" })",
        ),
        (
            "version: 1\n---\nversion: 1\n",
            "p.yaml:2:1: a second YAML document starts here (move it to its own file: a pipeline \
             file holds one document)",
        ),
        (
            "version: !int 1\n",
            "p.yaml:1:10: tags such as !name are not supported (put a string that begins with \
             \"!\" in quotes)",
        ),
        (
            "version: 1\nsource:\n  use: a\n  config:\n    x: 1\n    y: 2\n    x: 3\n",
            "p.yaml:7:5: the key \"x\" is already in line 5 (remove one of them)",
        ),
        (
            "version: 1\nversion: 1\n",
            "p.yaml:2:1: the key \"version\" is already in line 1 (remove one of them)",
        ),
        (
            "1: a\n",
            "p.yaml:1:1: the key \"1\" is not a string (put it in quotes)",
        ),
        (
            "? [a]\n: b\n",
            "p.yaml:1:3: a mapping or a list cannot be a key (put a string that begins with { or \
             [ in quotes)",
        ),
        ("a: &x 1\n*x : 2\n", "p.yaml:2:1: an alias cannot be a key"),
        (
            "a: &x [*x]\n",
            "p.yaml:1:8: this alias is inside the value that it names (write the value instead \
             of the alias)",
        ),
        (
            "a: &x 1\nc:\n  <<: *x\n",
            "p.yaml:3:3: the merge key << takes a mapping, or a list of mappings (write `<<: \
             *base`, where another mapping begins with `&base`; to use << as a plain key, put it \
             in quotes)",
        ),
        (
            "a: *nowhere\n",
            "p.yaml:1:4: not valid YAML: while parsing node, found unknown anchor (put a \
             value that begins with * or & in quotes: '*')",
        ),
        (
            "source:\n  streams:\n    - *\n",
            "p.yaml:3:7: not valid YAML: while scanning an anchor or alias, did not find expected \
             alphabetic or numeric character (put a value that begins with * or & in quotes: \
             '*')",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fails(text).to_string(), expected);
    }
}

#[test]
fn every_common_slip_of_yaml_has_a_hint() {
    let slips = [
        "a: [1, 2\nb: 3\n",
        "a: {b: 1\nc: 2\n",
        "a: ]\n",
        "a:\n  b: 1\n c: 2\n",
        "a\nb: 1\n",
        "a:1\nb: 2\n",
        "a: 1\n  b: 2\n",
        "- a\nb: c\n",
        "a: @x\n",
        "a: %x\n",
        "a: `x`\n",
        "a: 'it's'\n",
        "a: \"x\" y\n",
        "a: \"x\\q\"\n",
        "a: 'x\n",
        "a: *b c\n",
    ];
    for text in slips {
        let error = fails(text);
        assert_eq!(error.code, code::YAML_SYNTAX, "{text:?}");
        assert!(error.line > 0 && error.hint.is_some(), "{text:?}: {error}");
    }
}

#[test]
fn a_syntax_error_carries_its_code_and_key_path() {
    let error = fails("source:\n  streams:\n    - a\n    - {columns: 1, columns: 2}\n");
    assert_eq!(error.code, code::DUPLICATE_KEY);
    assert_eq!(error.path, "source.streams[1].columns");
    assert_eq!((error.line, error.column), (4, 20));
}

#[test]
fn a_file_without_content_is_empty() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "null\n"] {
        let error = fails(text);
        assert_eq!(error.code, code::EMPTY_FILE, "{text:?}");
        assert_eq!(
            error.to_string(),
            "p.yaml: the pipeline file is empty (start with version: 1 and pipeline: <name>)"
        );
    }
}

#[test]
fn a_file_that_is_not_a_mapping_is_refused() {
    assert_eq!(
        fails("- a\n").to_string(),
        "p.yaml:1:1: a pipeline file must be a mapping, but is a list (start with version: 1)"
    );
}

#[test]
fn aliases_repeat_a_value() {
    let config = config("    a: &x {k: [1, two]}\n    b: *x\n");
    assert_eq!(
        Value::Object(config),
        json!({"a": {"k": [1, "two"]}, "b": {"k": [1, "two"]}})
    );
}

#[test]
fn a_merge_key_adds_the_keys_that_a_mapping_lacks() {
    let text = "    a: &a {k: 1, l: 2}\n    b: &b {l: 3, m: 4}\n    c: {l: 5, <<: *a}\n    \
                d: {<<: [*a, *b], n: 6}\n    e: &e {<<: *a, k: 7}\n    f: {<<: *e}\n    \"<<\": text\n";
    let config = config(text);
    assert_eq!(
        Value::Object(config),
        json!({
            "a": {"k": 1, "l": 2}, "b": {"l": 3, "m": 4}, "c": {"l": 5, "k": 1},
            "d": {"k": 1, "l": 2, "m": 4, "n": 6}, "e": {"k": 7, "l": 2}, "f": {"k": 7, "l": 2},
            "<<": "text"
        })
    );
    // A mistake in what is merged has the place where it is written.
    let text = with("defaults: &d { sync_mode: incremental, cursor_feld: id }\n");
    assert_eq!(fails(&text).line, 8);
    let text = "version: 1\npipeline: p\nsource:\n  use: a\n  streams:\n    \
                - &base { name: x, colums: [id] }\n    - { <<: *base, name: y }\ndestination: { use: b }\n";
    let error = fails(text);
    assert_eq!((error.line, error.code), (6, code::UNKNOWN_KEY), "{error}");
    // A key is valid where it is written, but not where it is merged: the error is at the merge.
    let text = "version: 1\npipeline: p\nsource: { use: a, streams: [x], config: {} }\nretry: &r\n  max_attempts: 3\n\
                checkpoint:\n  <<: *r\n  every_rows: 5\ndestination: { use: b }\n";
    let error = fails(text);
    assert_eq!((error.line, error.code), (7, code::UNKNOWN_KEY), "{error}");
    let told = "unknown key \"max_attempts\", which << takes from line 5";
    assert!(error.message.contains(told), "{error}");
    let twice = fails(&with_config("    a: &a {k: 1}\n    b: {<<: *a, <<: *a}\n"));
    assert_eq!(twice.code, code::DUPLICATE_KEY, "{twice}");
    let of_list = fails(&with_config("    a: &a [k]\n    b: {<<: *a}\n"));
    assert_eq!(
        (of_list.line, of_list.code),
        (10, code::YAML_SYNTAX),
        "{of_list}"
    );
}

#[test]
fn merge_keys_cannot_unfold_without_end() {
    let mut text = String::from("    a0: &a0 {k: [x, x, x, x, x, x, x, x, x, x]}\n");
    for level in 1..8 {
        let below = format!("*a{}", level - 1);
        let keys: Vec<String> = (0..10).map(|n| format!("k{level}{n}: {below}")).collect();
        text += &format!(
            "    a{level}: &a{level} {{<<: {below}, {}}}\n",
            keys.join(", ")
        );
    }
    assert_eq!(fails(&with_config(&text)).code, code::YAML_SYNTAX);
}

#[test]
fn aliases_cannot_unfold_without_end() {
    let mut text = String::from("    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = [below.as_str(); 10].join(", ");
        text += &format!("    a{level}: &a{level} [{items}]\n");
    }
    let error = fails(&with_config(&text));
    assert_eq!(
        error.to_string(),
        "p.yaml:13:49: the file has more than 100000 values or 16 MiB of text, with aliases \
         written out"
    );
}

#[test]
fn a_long_text_cannot_be_repeated_without_end() {
    let text = format!(
        "    a: &a {}\n    b: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(20)
    );
    assert_eq!(fails(&with_config(&text)).code, code::YAML_SYNTAX);
}

#[test]
fn depth_is_bounded_however_it_is_written() {
    let deep = "[".repeat(70) + &"]".repeat(70);
    let error = fails(&deep);
    assert_eq!(
        error.to_string(),
        "p.yaml:1:65: mappings and lists are nested more than 64 levels deep"
    );
    assert_eq!(fails(&"- ".repeat(500_000)).code, code::YAML_SYNTAX);
    let half = "[".repeat(30) + &"]".repeat(30);
    let through_alias = format!(
        "    a: &a {half}\n    b: {}*a{}\n",
        "[".repeat(40),
        "]".repeat(40)
    );
    assert!(
        fails(&with_config(&through_alias))
            .message
            .contains("64 levels")
    );
}

/// Each of these is megabytes of one thing; a parser that looks back for each would not return.
#[test]
fn large_hostile_files_end_soon() {
    for piece in [
        "- a\n", "a ", "? ", "{a: ", ": ", "&a ", "\"a\": ", "a: |\n", "#\n", "- \"", "!a ",
    ] {
        let error = fails(&piece.repeat((1 << 20) / piece.len()));
        assert!(error.to_string().len() < 400);
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_read() {
    let text = format!("\u{feff}{}", LEAST.replace('\n', "\r\n"));
    assert_eq!(good(&text).pipeline, "orders");
    let error = fails(&format!("{text}sorce: 1\r\n"));
    assert_eq!((error.line, error.column), (8, 1));
}

#[test]
fn plain_scalars_have_the_types_of_the_core_schema() {
    let cases = [
        ("~", json!(null)),
        ("", json!(null)),
        ("null", json!(null)),
        ("true", json!(true)),
        ("FALSE", json!(false)),
        ("yes", json!("yes")),
        ("on", json!("on")),
        ("0", json!(0)),
        ("-12", json!(-12)),
        ("+12", json!(12)),
        ("0o17", json!(15)),
        ("0xFF", json!(255)),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(u64::MAX)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1.", json!(1.0)),
        ("1e3", json!(1000.0)),
        ("-1.5E-3", json!(-0.0015)),
        ("1e", json!("1e")),
        ("1.2.3", json!("1.2.3")),
        ("0x", json!("0x")),
        ("1_000", json!("1_000")),
        ("12:30", json!("12:30")),
        ("2026-01-01", json!("2026-01-01")),
        ("inf", json!("inf")),
        ("'007'", json!("007")),
        ("\"1\"", json!("1")),
        ("'null'", json!("null")),
    ];
    for (text, expected) in cases {
        assert_eq!(config(&format!("    k: {text}\n"))["k"], expected, "{text}");
    }
    assert_eq!(config("    k: |\n      1\n")["k"], json!("1\n"));
}

#[test]
fn numbers_that_would_change_are_refused() {
    let quotes = "(put it in quotes to pass it as a string)";
    let cases = [
        (
            "007",
            "an integer with leading zeros, which a number would lose",
        ),
        (
            "18446744073709551616",
            "an integer that does not fit in 64 bits",
        ),
        (
            "-9223372036854775809",
            "an integer that does not fit in 64 bits",
        ),
        (
            "0x10000000000000000",
            "an integer that does not fit in 64 bits",
        ),
        (".inf", "not a finite number"),
        ("-.Inf", "not a finite number"),
        (".nan", "not a finite number"),
        ("1e999", "not a finite number"),
    ];
    for (text, reason) in cases {
        let error = fails(&with_config(&format!("    k: [{text}]\n")));
        assert_eq!(error.code, code::BAD_VALUE);
        assert_eq!(
            error.to_string(),
            format!("p.yaml:9:9: source.config.k[0]: \"{text}\" is {reason} {quotes}")
        );
    }
}

#[test]
fn every_place_can_be_found_again() {
    let text = "\
version: 1
pipeline: orders
source:
  use: source-file
  config:
    path: 'a.csv'
    schema:
      id: int64
    \"odd.key\": 1
    none:
  streams:
    - orders
    - name: lines
      columns: [id,
        total]
destination: { use: dest-file }
";
    let document = good(text);
    let at = |path: &str| {
        let place = document.locate(path);
        place.map(|place| (place.line, place.column))
    };
    assert_eq!(at("version"), Some((1, 10)));
    assert_eq!(at("source"), Some((3, 1)), "a mapping is where its key is");
    assert_eq!(at("source.config"), Some((5, 3)));
    assert_eq!(at("source.config.path"), Some((6, 11)));
    assert_eq!(at("source.config.schema.id"), Some((8, 11)));
    assert_eq!(at("source.config[\"odd.key\"]"), Some((9, 16)));
    assert_eq!(at("source.config.none"), Some((10, 5)), "no value: its key");
    assert_eq!(at("source.streams[0]"), Some((12, 7)));
    assert_eq!(at("source.streams[1]"), Some((13, 7)));
    assert_eq!(at("source.streams[1].columns"), Some((14, 7)));
    assert_eq!(at("source.streams[1].columns[1]"), Some((15, 9)));
    assert_eq!(at("destination.use"), Some((16, 21)));
    assert_eq!(
        at("source.config.nothing.here"),
        Some((5, 3)),
        "the nearest above"
    );
    assert_eq!(at("source.streams[9].columns"), Some((11, 3)));
    assert_eq!(at("source.config.path.deeper[1]"), Some((6, 11)));
    assert_eq!(at("sauce.use"), None);
    assert_eq!(at(""), None);
    assert_eq!(at("source.[x"), Some((3, 1)));
}

#[test]
fn an_odd_key_is_quoted_in_a_path_and_found_by_it() {
    let text = with_config("    \"a.b \\\"c\\\"\": [007]\n");
    let error = fails(&text);
    assert_eq!(error.path, "source.config[\"a.b \\\"c\\\"\"][0]");
    let document = good(&text.replace("007", "7"));
    let place = document.locate(&error.path).unwrap();
    assert_eq!((place.line, place.column), (error.line, error.column));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~\n\t\u{e9}]{0,200}") {
        let _ = parse(&text);
        let _ = parse(&with_config(&format!("    {text}")));
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(
        at in any::<proptest::sample::Index>(),
        with in "[-:,{}\\[\\]&*!|>'\"%@`#$ \n]{0,3}",
    ) {
        let full = with_config("    a: &x {b: [1, '2', \"3\"]}\n    c: *x\n    d: ${PORT}\n");
        let at = at.index(full.len());
        let _ = parse(&format!("{}{with}{}", &full[..at], &full[at..]));
        let _ = parse(&format!("{}{with}", &full[..at]));
    }

    #[test]
    fn every_json_value_is_read_back(value in json_value()) {
        let text = with_config(&format!("    k: {}\n", value));
        prop_assert_eq!(&good(&text).source.config["k"], &value);
    }
}

/// JSON is YAML; `$` is left out, since it would be interpolated.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        "[ -#%-~]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,8}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn a_type_with_a_comma_must_be_in_quotes_between_braces() {
    for (columns, place, whole) in [
        ("{ total: decimal(10,2) }", 28, "total: \"decimal(10,2)\""),
        (
            "{ id: int64, total: decimal(10, 2), n: int64 }",
            39,
            "total: \"decimal(10,2)\"",
        ),
        (
            "{ a: decimal(1,0), b: decimal(2,0) }",
            24,
            "a: \"decimal(1,0)\"",
        ),
        ("{ a: row(x,y,z) }", 24, "a: \"row(x,y,z)\""),
    ] {
        let error = fails(&with_config(&format!("    schema: {columns}\n")));
        assert_eq!(error.code, code::YAML_SYNTAX, "{columns}: {error}");
        let hint = error.hint.clone().unwrap_or_default();
        assert_eq!(hint, format!("put it in quotes: {whole}"), "{error}");
        assert!(error.column > 0 && error.column <= place, "{error}");
    }
    for columns in ["{ total: \"decimal(10,2)\" }", "{ \"a)\": x(, \"b)\": y }"] {
        good(&with_config(&format!("    schema: {columns}\n")));
    }
}

#[test]
fn a_key_in_another_case_is_known() {
    let error = fails(&with("Resources: { memory: 64mb }\n"));
    assert_eq!(error.hint.as_deref(), Some("did you mean \"resources\"?"));
    let error = fails(&with("checkpoint: { EVERY_ROWS: 5 }\n"));
    assert_eq!(error.hint.as_deref(), Some("did you mean \"every_rows\"?"));
}
