//! What a configuration grants.

use super::files::MAX_PATH_BYTES;
use super::*;
use serde_json::json;
use tls::Mode;

fn grants(schema: Value, config: Value) -> Grants {
    let config = config.as_object().expect("an object").clone();
    Grants::from_config(&json!({ "properties": schema }), &config, Path::new("/p"))
}

#[test]
fn stamps_of_tls_files_change_with_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "one").expect("a file");
    let schema = json!({ "url": {"x-grant": "url"} });
    let url = format!("postgres://h/d?sslrootcert={}", file.display());
    let grants = grants(schema, json!({ "url": url }));
    let first = grants.tls_stamps();
    assert_eq!((first.len(), &grants.tls_stamps()), (1, &first));
    std::fs::write(&file, "other").expect("a file");
    let second = grants.tls_stamps();
    assert_ne!(first, second);
    std::fs::remove_file(&file).expect("removed");
    assert_ne!(second, grants.tls_stamps());
}

#[test]
fn exactly_what_was_written() {
    let schema = json!({
        "path": {"x-grant": "read"}, "out": {"x-grant": "write"}, "other": {},
        "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
        "url": {"x-grant": "url"},
    });
    let grants = grants(
        schema,
        json!({
            "path": "data/*.csv", "out": "../out/{stream}.csv", "other": "/etc/passwd",
            "host": "DB.internal", "url": "postgres://u:p@x:1@[::1]:6000/db",
        }),
    );
    assert_eq!(
        grants.describe(),
        [
            "connect ::1:6000, TLS prefer",
            "connect db.internal:5432",
            "read data/*.csv",
            "write /out/*.csv",
        ]
    );
    assert!(grants.allows_network("db.internal", 5432));
    assert!(!grants.allows_network("db.internal", 5433));
    assert!(!grants.allows_network("db.internal.evil", 5432));
    assert!(grants.readable("data/a.csv").is_some());
    assert!(grants.readable("data/./a.csv").is_some());
    for path in [
        "data/x/a.csv",
        "data/../../etc/passwd",
        "/etc/passwd",
        "data/a.txt",
    ] {
        assert!(grants.readable(path).is_none(), "{path}");
    }
    assert!(grants.writable("data/a.csv").is_none());
    let granted = grants.writable("/out/a.csv").expect("granted");
    assert_eq!(granted.root, Path::new("/out"));
}

#[test]
fn a_sign_grants_no_dotfile_and_nothing_grants_the_programs_own_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path();
    std::fs::create_dir(base.join("sub")).expect("a folder");
    std::os::unix::fs::symlink(".", base.join("sub/link")).expect("a link");
    std::os::unix::fs::symlink("..", base.join("up")).expect("a link");
    let of = |path: &str, other: &str| {
        let schema = json!({"properties": {
            "in": {"x-grant": "read"}, "out": {"x-grant": "write"},
        }});
        let config = json!({"in": path, "out": [path, other]});
        let config = config.as_object().expect("an object");
        Grants::from_config(&schema, config, base).protecting(Path::new("p.yaml"))
    };
    let all = of("*", "*/*");
    assert!(all.readable("a.csv").is_some() && all.writable("a.csv").is_some());
    assert!(all.readable("p.yaml").is_some(), "it may be read");
    for name in [".env", ".git", ".rapidbyte/state.db", ".ssh/id"] {
        assert!(all.readable(name).is_none(), "{name}");
        assert!(all.writable(name).is_none(), "{name}");
    }
    let base_name = base
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let round = format!("up/{base_name}/*");
    let named = of(".*", &round);
    assert!(
        named.readable(".env").is_some(),
        "the operator wrote the dot"
    );
    for grants in [
        &all,
        &of("p.yaml", ".env"),
        &of("rapidbyte.lock", ".rapidbyte/*"),
        &named,
    ] {
        for name in ["p.yaml", "rapidbyte.lock", ".env", ".rapidbyte/state.db"] {
            assert!(grants.writable(name).is_none(), "{name}");
            let round = format!("up/{base_name}/{name}");
            assert!(grants.writable(&round).is_none(), "{round}");
        }
    }
    // A folder is replaced with all that is in it.
    let parts = of("*.csv", "sub/*.csv");
    assert!(parts.folder(".", "*.csv").is_none());
    assert!(parts.folder("sub", "sub/*.csv").is_some());
}

#[test]
fn hosts_have_the_ports_that_were_written_for_them() {
    let mark = |grant: &str| json!({"x-grant": grant});
    let schema = json!({"properties": {
        "host": mark("host"), "port": mark("port"), "hosts": mark("host"),
        "replica_host": mark("host"), "replica_port": mark("port"), "admin": mark("port"),
        "sslmode": mark("tls-mode"),
    }});
    for (config, expected) in [
        (json!({"host": "a", "port": 1}), vec!["a:1, TLS prefer"]),
        (
            json!({"hosts": ["a", "b"], "port": 1}),
            vec!["a:1, TLS prefer", "b:1, TLS prefer"],
        ),
        (
            json!({"host": "a", "port": 1, "admin": 2, "sslmode": "verify-full"}),
            vec!["a:1, TLS verify-full", "a:2, TLS verify-full"],
        ),
        (
            json!({"host": "a", "port": 1, "replica_host": "b", "replica_port": 2}),
            vec!["a:1, TLS prefer", "b:2, TLS prefer"],
        ),
        (
            json!({"hosts": ["a", "b"], "port": 1, "admin": 2}),
            vec!["a:1, TLS prefer", "b:2, TLS prefer"],
        ),
    ] {
        let config = config.as_object().expect("an object");
        let mut shown = Grants::from_config(&schema, config, Path::new("/p")).describe();
        shown.sort();
        let expected: Vec<_> = expected
            .iter()
            .map(|end| format!("connect {end}"))
            .collect();
        assert_eq!(shown, expected, "{config:?}");
    }
    assert_eq!(unmarked_tls(&schema), None);
    let unmarked = json!({"properties": {"tls": {"properties": {"sslmode": {"type": "string"}}}}});
    assert_eq!(unmarked_tls(&unmarked), Some("sslmode"));
    let again = json!({"properties": {"a": {"$ref": "#/$defs/r"}, "b": {"$ref": "#/$defs/r"}}});
    let round = json!({"properties": {"a": {"$ref": "#/$defs/r"}}, "$defs": {"r": again}});
    assert_eq!(unmarked_tls(&round), None, "it comes to an end");
}

#[test]
fn a_granted_link_is_shown_with_its_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let real = folder.path().canonicalize().expect("a folder");
    let (base, other) = (real.join("base"), real.join("other"));
    for made in [&base, &other, &base.join("plain")] {
        std::fs::create_dir(made).expect("a folder");
    }
    std::os::unix::fs::symlink(&other, base.join("link")).expect("a link");
    std::os::unix::fs::symlink(&base, real.join("named")).expect("a link");
    let schema = json!({"properties": {"out": {"x-grant": "write"}}});
    for base in [base, real.join("named")] {
        let config = json!({"out": ["link/*.csv", "plain/*.csv"]});
        let config = config.as_object().expect("an object");
        let shown = Grants::from_config(&schema, config, &base).describe();
        let link = format!(
            "write link/*.csv (a link leads to {}/*.csv)",
            other.display()
        );
        assert_eq!(shown, [link, "write plain/*.csv".to_owned()]);
    }
}

#[test]
fn partition_columns_of_single_streams_add_folders_for_these_alone() {
    let schema = json!({
        "path": {"x-grant": "write"}, "by": {"x-grant": "folders"}, "of": {"x-grant": "folders"},
    });
    let config = json!({
        "path": "out/{stream}/a.csv", "by": ["day"],
        "of": {"s": ["hour", "x"], "t": [], "../u": ["day"], "*": ["all"], "v": "day"},
    });
    let grants = grants(schema, config);
    assert_eq!(
        grants.describe(),
        [
            "write out/*/day=*/a.csv",
            "write out/s/hour=*/x=*/a.csv",
            "write out/t/a.csv",
            "write out/v/a.csv"
        ]
    );
    assert!(grants.writable("out/s/hour=1/x=2/a.csv").is_some());
    assert!(grants.writable("out/r/hour=1/x=2/a.csv").is_none());
}

#[test]
fn partition_columns_add_folders_to_what_may_be_written() {
    let schema = json!({
        "path": {"x-grant": "write"}, "in": {"x-grant": "read"}, "by": {"x-grant": "folders"},
    });
    let config = json!({
        "path": "out/{stream}/p-{part}.csv", "in": "a.csv", "by": ["day", "a/../b"],
    });
    let grants = grants(schema, config);
    assert_eq!(
        grants.describe(),
        ["read a.csv", "write out/*/day=*/a%2F..%2Fb=*/p-*.csv"]
    );
    let may = |path: &str| grants.writable(path).is_some();
    assert!(may("out/s/day=1/a%2F..%2Fb=2/p-00000.csv"));
    for path in [
        "out/s/p-00000.csv",
        "out/s/day=1/x=2/p-00000.csv",
        "out/s/day=1/a%2F..%2Fb=../../../p-00000.csv",
        "out/s/day=1/a%2F..%2Fb=2/x.csv",
    ] {
        assert!(!may(path), "{path}");
    }
    let files = "day=*/a%2F..%2Fb=*/p-*.csv";
    let may = |folder: &str, pattern: &str| grants.folder(folder, pattern).is_some();
    assert!(may("out/s", &format!("out/s/{files}")));
    for (folder, pattern) in [
        ("out/s", "out/s/*"),
        ("out/s", &format!("out/t/{files}")),
        ("out", &format!("out/../{files}")),
        (".", &format!("out/s/{files}")),
        ("/", &format!("out/s/{files}")),
        ("out/*", &format!("out/*/{files}")),
    ] {
        assert!(!may(folder, pattern), "{folder} {pattern}");
    }
}

#[test]
fn a_default_of_the_schema_grants_nothing_but_one_port() {
    let schema = json!({
        "in": {"x-grant": "read", "default": "/etc/passwd"},
        "out": {"x-grant": "write", "default": ".profile"},
        "to": {"x-grant": "host", "default": "evil.example"},
        "url": {"x-grant": "url", "default": "https://evil.example"},
        "inner": {"default": {"path": "/etc/shadow"}, "properties": {
            "path": {"x-grant": "read", "default": "/etc/shadow"},
        }},
        "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
    });
    assert_eq!(grants(schema.clone(), json!({})).describe(), [""; 0]);
    let of_host = grants(schema, json!({"host": "db"}));
    assert_eq!(of_host.describe(), ["connect db:5432"]);
    let several = json!({
        "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
        "other": {"x-grant": "port", "default": 22}, "none": {"x-grant": "port", "default": 0},
    });
    assert_eq!(
        grants(several.clone(), json!({"host": "db"})).describe(),
        [""; 0]
    );
    let written = grants(several, json!({"host": "db", "port": 1}));
    assert_eq!(written.describe(), ["connect db:1"]);
}

#[test]
fn objects_that_nobody_wrote_are_not_searched() {
    // Twenty keys that refer to the schema itself would be 20 to the power of the depth.
    let keys = (0..20).map(|n| (format!("k{n}"), json!({"$ref": "#"})));
    let schema = json!({"properties": Value::Object(keys.collect()), "default": {}});
    let config = json!({"k1": {"k2": {}}});
    let config = config.as_object().expect("an object");
    let grants = Grants::from_config(&schema, config, Path::new("/p"));
    assert_eq!(grants.describe(), [""; 0]);
}

#[test]
fn only_a_directory_of_its_own_kind_is_granted_beside() {
    for name in [
        ".ssh",
        "..",
        "../x",
        "_a/../../x",
        "_*",
        "/etc",
        "",
        "src",
        "_é",
    ] {
        let schema = json!({"path": {"x-grant": "write", "x-beside": name}});
        let grants = grants(schema, json!({"path": "out/{part}.csv"}));
        assert_eq!(grants.describe(), ["write out/*.csv"], "{name}");
    }
}

#[test]
fn long_hosts_and_paths_are_not_granted() {
    let schema = json!({"path": {"x-grant": "read"}, "url": {"x-grant": "url"}});
    let host = "a".repeat(MAX_HOST_BYTES + 1);
    let config = json!({"path": "d/*", "url": format!("http://{host}")});
    let grants = grants(schema, config);
    let path = |len: usize| format!("d/{}", "*".repeat(len - 2));
    assert!(grants.readable(&path(MAX_PATH_BYTES)).is_some());
    assert!(grants.readable(&path(MAX_PATH_BYTES + 1)).is_none());
    assert!(!grants.allows_network(&host, 80));
}

#[test]
fn a_folder_beside_is_granted_where_files_are_added_and_read() {
    let schema = |mark: &str| {
        json!({
            "path": {"x-grant": mark, "x-beside": "_manifest"}, "by": {"x-grant": "folders"},
        })
    };
    let writes = |path: &str| grants(schema("write"), json!({"path": path, "by": ["day"]}));
    let out = writes("out/{stream}/p-{part}.csv");
    let described = out.describe();
    assert_eq!(
        described,
        [
            "read out/*/_manifest/*",
            "write out/*/day=*/p-*.csv",
            "write out/*/_manifest/*"
        ]
    );
    for path in [
        "out/s/_manifest/x/y",
        "out/_manifest/x",
        "out/s/_manifest/../x",
    ] {
        assert!(out.writable(path).is_none(), "{path}");
    }
    // Hidden files in this folder are the connector's own, hidden files in other folders are not.
    for path in ["out/s/_manifest/.1.json.2-0.tmp", "out/s/_manifest/.*.tmp"] {
        assert!(out.writable(path).is_some(), "{path}");
        assert!(out.readable(path).is_some(), "{path}");
    }
    for path in [
        "out/.s/_manifest/x",
        "out/s/_manifest/.x/y",
        "out/s/day=1/.p-1.csv",
    ] {
        assert!(out.writable(path).is_none(), "{path}");
    }
    // No link in the place of the folder leads out.
    let fixed = writes("out/p-{part}.csv");
    let granted = fixed.writable("out/_manifest/1").expect("granted");
    assert_eq!(granted.root, Path::new("/p/out"));
    for path in ["out/_manifest/1", "out/_manifest/.1.tmp"] {
        let granted = fixed.readable(path).expect("granted");
        assert_eq!(granted.root, Path::new("/p/out"), "{path}");
    }
    assert_eq!(writes("out/a.csv").describe(), ["write out/day=*/a.csv"]);

    let reads = |path: &str| grants(schema("read"), json!({"path": path})).describe();
    assert_eq!(reads("in/a.csv"), ["read in/a.csv"]);
    assert_eq!(reads("in/*.csv"), ["read in/*.csv", "read in/_manifest/*"]);
    assert_eq!(
        reads("day=*/n=1/*.csv"),
        [
            "read day=*/n=1/*.csv",
            "read day=*/n=1/_manifest/*",
            "read day=*/_manifest/*",
            "read _manifest/*"
        ]
    );
}

#[test]
fn a_file_that_is_read_is_known_when_it_is_to_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path().canonicalize().expect("a path");
    std::fs::create_dir(base.join("data")).expect("a folder");
    std::os::unix::fs::symlink("data", base.join("link")).expect("a link");
    std::fs::write(base.join("data/a.csv"), "").expect("a file");
    std::os::unix::fs::symlink("data/a.csv", base.join("file")).expect("a link");
    let of = |mark: &str, path: &str| {
        let schema = json!({"properties": {"path": {"x-grant": mark}}});
        let config = json!({"path": path});
        let config = config.as_object().expect("an object");
        Grants::from_config(&schema, config, &base)
    };
    for (read, write, path, expected) in [
        ("data/a.csv", "data/a.csv", "data/a.csv", true),
        ("data/a.csv", "data/../data/./a.csv", "data/a.csv", true),
        ("link/a.csv", "data/{stream}.csv", "data/a.csv", true),
        ("file", "link/a.csv", "link/a.csv", true),
        ("data/*.csv", "data/new.csv", "data/new.csv", true),
        ("data/{stream}.csv", "data/s.csv", "data/s.csv", true),
        ("data/{stream}.csv", "data/new.csv", "data/new.csv", false),
        ("data/a.csv", "data/b.csv", "data/b.csv", false),
        ("data/a.csv", "data/{part}.csv", "data/*.csv", true),
        ("data/?.csv", "data/{part}.csv", "data/*.csv", true),
        ("data/a.csv", "data/b-{part}.csv", "data/b-*.csv", false),
        ("data/*.csv", "other/a.csv", "other/a.csv", false),
        // Not a file: nothing is granted.
        ("data/*", "data/a.csv", "public.t", false),
    ] {
        let read_files = of("read", read).read_for(["r", "s"]);
        let found = of("write", write).writes_what_is_read(path, &read_files);
        assert_eq!(found, expected, "{read} {write} {path}");
    }
}

fn mode(grants: &Grants, host: &str, port: u16) -> Option<Mode> {
    grants.tls(host, port)?.policy().ok().map(|p| p.mode)
}

#[test]
fn tls_goes_with_the_servers_beside_it() {
    let schema = json!({
        "host": {"x-grant": "host"}, "port": {"x-grant": "port"},
        "mode": {"x-grant": "tls-mode", "default": "disable"},
        "ca": {"x-grant": "tls-root-cert", "default": "/etc/passwd"},
        "url": {"x-grant": "url"},
        "inner": {"properties": {
            "h": {"x-grant": "host"}, "p": {"x-grant": "port"}, "m": {"x-grant": "tls-mode"},
        }},
    });
    let config = json!({
        "host": "a", "port": 1, "mode": "verify-ca",
        "url": "postgres://u:p@b,c:2/db?sslmode=verify-full",
        "inner": {"h": "d", "p": 3, "m": "require"},
    });
    let grants = grants(schema.clone(), config);
    assert_eq!(mode(&grants, "A", 1), Some(Mode::VerifyCa));
    assert_eq!(mode(&grants, "b", 5432), Some(Mode::VerifyFull));
    assert_eq!(mode(&grants, "c", 2), Some(Mode::VerifyFull));
    assert_eq!(mode(&grants, "d", 3), Some(Mode::Require));
    assert_eq!(grants.tls("d", 1), None);
    let defaults = super::tests::grants(schema, json!({"host": "a", "port": 1}));
    assert_eq!(defaults.tls("a", 1), Some(&Settings::default()));
}

#[test]
fn the_servers_of_a_mongodb_url_are_granted_with_their_options() {
    let schema = json!({"url": {"x-grant": "url"}});
    let url = "mongodb://u:p%40@a,[::1]:5,c:2/db?replicaSet=r&tls=true";
    let grants = grants(schema, json!({"url": url}));
    for (host, port) in [("a", 27017), ("::1", 5), ("C", 2)] {
        assert_eq!(mode(&grants, host, port), Some(Mode::VerifyFull), "{host}");
    }
    assert!(!grants.allows_network("a", 5432) && !grants.allows_network("u", 27017));
}

#[test]
fn of_two_words_about_one_server_the_stricter_counts() {
    let schema = json!({"one": {"x-grant": "url"}, "two": {"x-grant": "url"}});
    let config = |one: &str, two: &str| json!({"one": format!("postgres://a{one}"), "two": format!("postgres://a{two}")});
    for (one, two) in [("", "?sslmode=require"), ("?sslmode=require", "")] {
        let grants = grants(schema.clone(), config(one, two));
        assert_eq!(mode(&grants, "a", 5432), Some(Mode::Require));
    }
    let grants = grants(schema, config("?sslmode=verify-full", "?sslmode=bad"));
    assert!(
        grants
            .tls("a", 5432)
            .is_some_and(|tls| tls.policy().is_err())
    );
}

#[test]
fn https_promises_a_checked_certificate() {
    let config = json!({"u": ["https://a/x", "http://b", "/var/run", "postgres:///db"]});
    let grants = grants(json!({"u": {"x-grant": "url"}}), config);
    assert_eq!(mode(&grants, "a", 443), Some(Mode::VerifyFull));
    assert_eq!(
        grants.describe(),
        ["connect a:443, TLS verify-full", "connect b:80"]
    );
}
