//! The questions of `init`, at a pseudo terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Folder, built};

/// Runs the arguments at a terminal of its own: types its standard input, prints the screen, and ends with
/// the exit code of the program. `pty` is part of Python's standard library. Ctrl-C works even if a shell
/// started the tests in the background, where it has its programs ignore Ctrl-C.
const TERMINAL: &str = "\
import os, pty, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
";
/// More output than this is not a question.
const MAX_SHOWN_BYTES: usize = 1 << 16;

/// Answers each question once it is there. Gives the exit code and all that was shown.
fn asked(folder: &Folder, arguments: &[&str], dialog: &[(&str, &str)]) -> (Option<i32>, String) {
    let program = folder.command(arguments);
    let mut command = Command::new(built("RAPIDBYTE_PYTHON"));
    command
        .args(["-c", TERMINAL])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(folder.path())
        .env_clear()
        .envs(program.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("Python starts");
    let mut keyboard = child.stdin.take().expect("a pipe");
    let mut screen = child.stdout.take().expect("a pipe");
    let mut shown = Vec::new();
    for (question, answer) in dialog {
        let before = shown.len();
        let mut byte = [0];
        while !String::from_utf8_lossy(&shown[before..]).contains(question) {
            let read = screen.read(&mut byte).expect("a screen");
            assert!(
                read == 1 && shown.len() < MAX_SHOWN_BYTES,
                "{question:?} is not asked: {}",
                String::from_utf8_lossy(&shown)
            );
            shown.push(byte[0]);
        }
        keyboard.write_all(answer.as_bytes()).expect("a keyboard");
        keyboard.flush().expect("a keyboard");
    }
    screen.read_to_end(&mut shown).expect("a screen");
    let ended = child.wait().expect("it ends");
    let shown = String::from_utf8(shown).expect("UTF-8");
    (ended.code(), shown.replace("\r\n", "\n"))
}

const FROM: &str =
    "Where do the rows come from? (postgres, file, http, mongodb, ingest, generate) [postgres] ";
const TO: &str = "Where do the rows go to? (postgres, mongodb, file) [postgres] ";
const NAME: &str = "What is the pipeline's name? [pipeline] ";

#[test]
fn answers_become_a_pipeline_that_runs() {
    let folder = Folder::new();
    let dialog = [(FROM, "File\n"), (TO, " file \n"), (NAME, "shop\n")];
    let (code, shown) = asked(&folder, &["init"], &dialog);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("wrote shop.yaml"), "{shown}");
    folder.write("data/orders.csv", "id\n1\n");
    let ended = folder.rapidbyte(&["run", "shop.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn an_empty_answer_is_the_default_and_flags_are_not_asked_for() {
    let folder = Folder::new();
    let (code, shown) = asked(
        &folder,
        &["init"],
        &[(FROM, "\n"), (TO, "\n"), (NAME, "\n")],
    );
    assert_eq!(code, Some(0), "{shown}");
    let text = folder.read("pipeline.yaml");
    for part in ["source-postgres", "dest-postgres", "pipeline: pipeline"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let flags = ["init", "--source", "generate", "--name", "test"];
    let (code, shown) = asked(&folder, &flags, &[(TO, "file\n")]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains(FROM) && !shown.contains(NAME), "{shown}");
    assert!(folder.read("test.yaml").contains("source-generate"));
}

#[test]
fn an_invalid_answer_is_asked_again_and_then_ends_init() {
    let folder = Folder::new();
    let dialog = [
        (FROM, "oracle\n"),
        (FROM, "file\n"),
        (TO, "file\n"),
        (NAME, "a\n"),
    ];
    let (code, shown) = asked(&folder, &["init"], &dialog);
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = asked(
        &folder,
        &["init"],
        &[(FROM, "1\n"), (FROM, "2\n"), (FROM, "3\n")],
    );
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("use --source"), "{shown}");
    // A name that cannot be one, and a keyboard that is gone (Ctrl-D).
    let named = [(FROM, "file\n"), (TO, "file\n"), (NAME, "../b\n")];
    let (code, shown) = asked(&folder, &["init"], &named);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("letters"), "{shown}");
    let (code, shown) = asked(&folder, &["init"], &[(FROM, "\u{4}")]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("could not read the answer"), "{shown}");
    assert_eq!(folder.files("."), [".gitignore", "a.yaml"]);
}

#[test]
fn ctrl_c_at_a_question_ends_it_and_leaves_nothing() {
    let folder = Folder::new();
    let (code, shown) = asked(&folder, &["init"], &[(FROM, "file\n"), (TO, "\u{3}")]);
    // The signal itself ends the program, which has not started anything.
    assert_eq!(code.map(|code| code & 0xff), Some(256 - 2), "{shown}");
    assert_eq!(folder.files("."), [""; 0]);
}
