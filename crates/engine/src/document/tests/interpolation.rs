use std::fs;

use serde_json::json;

use super::*;

#[test]
fn a_plain_value_gets_its_type_after_interpolation_and_a_quoted_one_is_text() {
    let config = config(
        "    port: ${PORT}\n    quoted: \"${PORT}\"\n    single: '${PORT}'\n    \
         url: http://${PASSWORD}:${PORT}/x\n    empty: ${EMPTY}\n    list: [\"${PORT}\"]\n    \
         block: |\n      a ${PORT}\n",
    );
    let expected = json!({
        "port": 5433,
        "quoted": "5433",
        "single": "5433",
        "url": "http://hunter2!:5433/x",
        "empty": null,
        "list": ["5433"],
        "block": "a 5433\n",
    });
    assert_eq!(Value::Object(config), expected);
}

#[test]
fn a_default_stands_in_for_an_unset_or_empty_variable() {
    let config = config(
        "    a: ${NOT_SET:-1}\n    b: ${EMPTY:-x y}\n    c: ${PORT:-1}\n    d: ${NOT_SET:-}\n    \
         e: '${NOT_SET:-a:-b$$c}'\n",
    );
    let expected = json!({"a": 1, "b": "x y", "c": 5433, "d": null, "e": "a:-b$c"});
    assert_eq!(Value::Object(config), expected);
}

#[test]
fn a_dollar_is_escaped_by_another_and_stands_for_itself_elsewhere() {
    let config =
        config("    a: $${PORT}\n    b: a$b$\n    c: $5\n    d: $$$${PORT}\n    e: $$${PORT}\n");
    let expected = json!({"a": "${PORT}", "b": "a$b$", "c": "$5", "d": "$${PORT}", "e": "$5433"});
    assert_eq!(Value::Object(config), expected);
}

#[test]
fn keys_are_not_interpolated() {
    let config = config("    \"${PORT}\": 1\n");
    assert_eq!(Value::Object(config), json!({"${PORT}": 1}));
}

#[test]
fn a_value_is_not_interpolated_twice_nor_parsed_as_yaml() {
    let environment = Environment::from_fn(|name| match name {
        "A" => Some("${B}".to_owned()),
        "LIST" => Some("[1, 2]: # x".to_owned()),
        _ => None,
    })
    .without_env_file();
    let text = with_config("    a: ${A}\n    b: ${LIST}\n");
    let document = Document::parse(&text, "p.yaml", Path::new("."), &environment).unwrap();
    assert_eq!(
        Value::Object(document.source.config),
        json!({"a": "${B}", "b": "[1, 2]: # x"})
    );
}

#[test]
fn mistakes_name_the_variable_the_key_and_the_line() {
    let cases = [
        (
            "    pool:\n      - url: x${NOT_SET}\n",
            "p.yaml:10:14: source.config.pool[0].url: the variable NOT_SET is not set (set it in \
             the environment or in .env, or give a default: ${NOT_SET:-…})",
        ),
        (
            "    k: ${PORT\n",
            "p.yaml:9:8: source.config.k: \"${\" without a \"}\" (write ${NAME}, or $${ for a \
             literal ${)",
        ),
        (
            "    k: ${PORT-1}\n",
            "p.yaml:9:8: source.config.k: \"${PORT-1}\" is not a valid reference (write ${NAME}, \
             ${NAME:-default} or ${file:path}, or $${ for a literal ${)",
        ),
        (
            "    k: ${}\n",
            "p.yaml:9:8: source.config.k: \"${}\" is not a valid reference (write ${NAME}, \
             ${NAME:-default} or ${file:path}, or $${ for a literal ${)",
        ),
        (
            "    k: \"${file:}\"\n",
            "p.yaml:9:8: source.config.k: \"${file:}\" is not a valid reference (write ${NAME}, \
             ${NAME:-default} or ${file:path}, or $${ for a literal ${)",
        ),
        (
            "    k: ${A:-${B}}\n",
            "p.yaml:9:8: source.config.k: \"${\" inside another \"${…}\" (write a plain default; \
             to combine variables, set the variable in .env)",
        ),
        (
            "    k: ${file:no/such}\n",
            "p.yaml:9:8: source.config.k: the file no/such does not exist (write the path \
             relative to the pipeline's directory, or absolute)",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(fails(&with_config(lines)).to_string(), expected);
    }
}

#[test]
fn a_mistake_in_an_interpolated_value_does_not_show_it() {
    let error = fails(&with_config("    k: ${ZEROS}\n"));
    assert_eq!(
        error.to_string(),
        "p.yaml:9:8: source.config.k: the value of \"${ZEROS}\" is an integer with leading \
         zeros, which a number would lose (put it in quotes to pass it as a string)"
    );
    let cases = [
        LEAST.replace("orders\n", "'${PASSWORD}'\n"),
        LEAST.replace("version: 1", "version: ${PASSWORD}"),
        with("  write_mode: ${PASSWORD}\n"),
        with("resources: {parallelism: \"${PASSWORD}\"}\n"),
        LEAST.replace("[orders]", "[\"${PASSWORD}\", \"${PASSWORD}\"]"),
    ];
    for text in cases {
        let error = fails(&text);
        let whole = format!("{error} {error:?}");
        assert!(!whole.contains("hunter2"), "{whole}");
        assert!(whole.contains("${PASSWORD}"), "{whole}");
    }
}

#[test]
fn a_file_is_relative_to_the_pipeline_and_loses_its_last_line_break() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one"), "secret\n").unwrap();
    fs::write(folder.path().join("two"), "a\r\nb\r\n").unwrap();
    fs::write(folder.path().join("three"), "x\n\n").unwrap();
    let text = with_config(
        "    a: ${file:one}\n    b: '${file: two }'\n    c: \"${file:three}\"\n    d: ${file:./one}!\n",
    );
    let document = Document::parse(&text, "p.yaml", folder.path(), &environment()).unwrap();
    assert_eq!(
        Value::Object(document.source.config.clone()),
        json!({"a": "secret", "b": "a\r\nb", "c": "x\n", "d": "secret!"})
    );
    assert_eq!(document.redact("secret a\r\nb x\n"), "*** *** x\n");
}

#[test]
fn files_that_cannot_be_taken_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    fs::write(folder.path().join("binary"), [0xff]).unwrap();
    fs::write(folder.path().join("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    fs::write(folder.path().join("just"), vec![b'x'; 1 << 20]).unwrap();
    let parse =
        |lines: &str| Document::parse(&with_config(lines), "p.yaml", folder.path(), &environment());
    let cases = [
        ("dir", code::NOT_A_FILE, "the file dir is a folder"),
        (
            "binary",
            code::INVALID_UTF8,
            "the file binary is not UTF-8 text",
        ),
        (
            "large",
            code::FILE_TOO_LARGE,
            "the file large is larger than 1 MiB",
        ),
    ];
    for (name, code, message) in cases {
        let error = parse(&format!("    k: ${{file:{name}}}\n")).unwrap_err();
        assert_eq!(error.code, code);
        assert_eq!(
            error.to_string(),
            format!("p.yaml:9:8: source.config.k: {message}")
        );
    }
    parse("    k: ${file:just}\n").unwrap();
    let many = "    k: [".to_owned() + &"\"${file:just}\", ".repeat(17) + "]\n";
    let error = parse(&many).unwrap_err();
    assert_eq!(error.path, "source.config.k[16]");
    assert!(error.message.ends_with("together exceed 16 MiB"), "{error}");
}

#[test]
fn secrets_are_what_came_from_outside_and_is_long_enough() {
    let document = good(&with_config(
        "    a: pre-${PASSWORD}-post\n    b: ${SHORT}\n    c: ${NOT_SET:-default}\n    \
         d: ${EMPTY}\n    e: literal\n    f: ${PASSWORD}\n    g: ${PORT:-1}\n",
    ));
    assert_eq!(
        document.redact("connect hunter2!@h:5433: hunter2! default"),
        "connect ***@h:***: *** default"
    );
}

#[test]
fn a_secret_inside_a_longer_one_does_not_uncover_it() {
    let environment = Environment::from_fn(|name| match name {
        "A" => Some("abcd".to_owned()),
        "B" => Some("abcdefgh".to_owned()),
        _ => None,
    })
    .without_env_file();
    let text = with_config("    a: ${A}\n    b: ${B}\n");
    let document = Document::parse(&text, "p.yaml", Path::new("."), &environment).unwrap();
    assert_eq!(document.redact("<abcdefgh> <abcd>"), "<***> <***>");
}
