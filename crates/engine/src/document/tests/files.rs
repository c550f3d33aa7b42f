use std::fs;

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The config's value for `${A}`, with this `.env` and this real variable `A`.
fn with_env(env: &str, real: Option<&str>) -> Result<String, DocumentError> {
    let folder = folder();
    fs::write(folder.path().join(".env"), env).unwrap();
    let environment = Environment::from_fn(|name| {
        let real = real.filter(|_| name == "A");
        real.map(str::to_owned)
    });
    let path = folder.path().join("p.yaml");
    fs::write(&path, with_config("    a: \"${A}\"\n")).unwrap();
    let document = Document::load(&path, &environment)?;
    Ok(document.source.config["a"].as_str().unwrap().to_owned())
}

#[test]
fn load_reads_a_file_and_keeps_its_folder() {
    let folder = folder();
    let path = folder.path().join("orders.yaml");
    fs::write(&path, LEAST).unwrap();
    let document = Document::load(&path, &environment()).unwrap();
    assert_eq!(document.base_dir, folder.path());
    assert_eq!(document.file, path.display().to_string());
}

#[test]
fn load_says_why_a_file_cannot_be_read() {
    let folder = folder();
    let fails = |name: &str| {
        let path = folder.path().join(name);
        let error = Document::load(&path, &environment()).unwrap_err();
        let shown = error.to_string();
        let rest = shown.strip_prefix(&path.display().to_string()).unwrap();
        (error.code, rest.to_owned())
    };
    let hint = "(give the path of a pipeline's YAML file)";
    assert_eq!(
        fails("absent.yaml"),
        (
            code::FILE_NOT_FOUND,
            format!(": the pipeline file does not exist {hint}")
        )
    );
    assert_eq!(
        fails("."),
        (
            code::NOT_A_FILE,
            format!(": the pipeline file is a folder {hint}")
        )
    );
    fs::write(folder.path().join("binary"), b"a: 1\nb: \xc3\xa9\xff\n").unwrap();
    assert_eq!(
        fails("binary"),
        (
            code::INVALID_UTF8,
            ":2:5: the pipeline file is not UTF-8 text".to_owned()
        )
    );
    fs::write(folder.path().join("empty"), "").unwrap();
    assert_eq!(fails("empty").0, code::EMPTY_FILE);
    fs::write(folder.path().join("large"), " ".repeat((4 << 20) + 1)).unwrap();
    assert_eq!(
        fails("large"),
        (
            code::FILE_TOO_LARGE,
            ": the pipeline file is larger than 4 MiB".to_owned()
        )
    );
}

#[test]
fn the_env_file_gives_values_and_the_real_environment_wins() {
    assert_eq!(with_env("A=file\n", None).unwrap(), "file");
    assert_eq!(with_env("A=file\n", Some("real")).unwrap(), "real");
    assert_eq!(
        with_env("A=file\n", Some("")).unwrap(),
        "",
        "set, though empty"
    );
}

#[test]
fn the_env_file_is_read_as_its_writers_expect() {
    let cases = [
        ("A=x", "x"),
        ("\u{feff}A=x\r\nB=y\r\n", "x"),
        ("# c\n\n  export A = x y \n", "x y"),
        ("export\tA=x", "x"),
        ("exported=1\nA=x", "x"),
        ("A=x # comment", "x"),
        ("A=x#y", "x#y"),
        ("A=# comment", ""),
        ("A=", ""),
        ("A=a=b", "a=b"),
        ("A=$B ${B}", "$B ${B}"),
        ("A=it's", "it's"),
        ("A='  a \\n \" # $x '  # comment", "  a \\n \" # $x "),
        ("A=\"a\\n\\t\\\\\\\"\\$b # c\"", "a\n\t\\\"$b # c"),
        ("A=\"one\ntwo\"\nB=1\n", "one\ntwo"),
        ("A=\"one\\ntwo\"\nB='a\nb'\n", "one\ntwo"),
        ("A=\"\"", ""),
        ("A=é", "é"),
    ];
    for (env, expected) in cases {
        assert_eq!(with_env(env, None).unwrap(), expected, "{env:?}");
    }
}

#[test]
fn a_mistake_in_the_env_file_has_its_line() {
    let cases = [
        (
            "\nA\n",
            ":2:1: this line has no \"=\" (write NAME=value, or start a comment with #)",
        ),
        (
            "A=1\n2B=1\n",
            ":2:1: the text before \"=\" is not a variable name (use letters, digits and _, and \
             do not start with a digit)",
        ),
        (
            "A=1\nB='x\ny\n",
            ":2:1: a quote opens in this line and never closes (close it with ')",
        ),
        (
            "A=\"x\ny\" z\n",
            ":2:1: text after a closing quote (put the whole value in quotes)",
        ),
        (
            "A=\"C:\\dir\"\n",
            ":1:1: in double quotes, a backslash precedes a character that has no escape (write \
             \\\\ for a backslash, or use single quotes)",
        ),
        (
            "A='\n\n'\n#\nB=1\nA=2\n",
            ":6:1: A is already set in line 1 (remove one of them)",
        ),
    ];
    for (env, expected) in cases {
        let error = with_env(env, None).unwrap_err();
        assert!(error.file.ends_with(".env"), "{error}");
        let shown = error.to_string();
        assert_eq!(&shown[error.file.len()..], expected);
    }
}

#[test]
fn a_named_env_file_takes_the_place_of_the_one_beside() {
    let folder = folder();
    fs::write(folder.path().join(".env"), "A=beside\n").unwrap();
    let other = folder.path().join("other.env");
    let load = || {
        let environment = Environment::from_fn(|_| None).with_env_file(&other);
        let text = with_config("    a: ${A}\n");
        Document::parse(&text, "p.yaml", folder.path(), &environment)
    };
    let error = load().unwrap_err();
    assert_eq!(error.code, code::FILE_NOT_FOUND);
    assert!(
        error
            .to_string()
            .ends_with("other.env: the env file does not exist")
    );
    fs::write(&other, "A=named\n").unwrap();
    assert_eq!(load().unwrap().source.config["a"], "named");
    fs::write(&other, "B=1\n").unwrap();
    assert_eq!(load().unwrap_err().code, code::UNSET_VARIABLE);
}

#[test]
fn a_directory_named_env_beside_the_pipeline_is_not_a_mistake() {
    let folder = folder();
    fs::create_dir(folder.path().join(".env")).unwrap();
    let environment = Environment::from_fn(|_| None);
    Document::parse(LEAST, "p.yaml", folder.path(), &environment).unwrap();
}

#[test]
fn the_environment_of_the_process_is_read() {
    let environment = Environment::process().without_env_file();
    let text = with_config("    a: \"${PATH}\"\n");
    let document = Document::parse(&text, "p.yaml", Path::new("."), &environment).unwrap();
    let path = std::env::var("PATH").unwrap();
    assert_eq!(document.source.config["a"], path.as_str());
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_refused() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let environment = Environment {
        lookup: Box::new(|_| Some(OsString::from_vec(vec![0xff]))),
        ..Environment::from_fn(|_| None).without_env_file()
    };
    let text = with_config("    a: ${A}\n");
    let error = Document::parse(&text, "p.yaml", Path::new("."), &environment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "p.yaml:9:8: source.config.a: the variable A is not UTF-8 text"
    );
}
