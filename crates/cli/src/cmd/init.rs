//! `rapidbyte init`

use std::fs::OpenOptions;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rapidbyte::{Class, Environment, Failure, Pipeline, open_regular_file};
use serde_json::json;

use crate::args::{DestinationKind, Init, SourceKind};
use crate::output::Output;

/// The pipeline's name where nobody gives one.
const NAME: &str = "pipeline";
/// The command asks a question this many times before it gives up.
const TRIES: usize = 3;
/// Entries that never belong in a repository: secrets, and the output of pipelines.
const IGNORED: [&str; 3] = [".env", ".rapidbyte/", "out/"];
/// The address of a server that is started without options.
const LISTEN: &str = "127.0.0.1:8465";
/// Longer files are not extended: they are not what they seem to be.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Everything that is known after flags and answers.
struct Wanted {
    source: SourceKind,
    destination: DestinationKind,
    name: String,
}

/// Writes the pipeline, and adds what is missing to `.env.example` and `.gitignore`.
pub fn run(init: &Init, output: &Output) -> Result<(), Failure> {
    let wanted = wanted(init)?;
    let text = pipeline(&wanted);
    check(&text, &wanted.name)?;
    std::fs::create_dir_all(&init.dir).map_err(|error| unwritable(&init.dir, &error))?;
    let file = within(init, &format!("{}.yaml", wanted.name));
    write(&file, &text, init.force)?;
    let mut extended = Vec::new();
    let ignored: Vec<String> = IGNORED.iter().map(|line| (*line).to_owned()).collect();
    for (name, lines) in [
        (".env.example", variables(&wanted)),
        (".gitignore", ignored),
    ] {
        let path = within(init, name);
        if extend(&path, &lines).map_err(|error| unwritable(&path, &error))? {
            extended.push(path.display().to_string());
        }
    }
    let file = file.display().to_string();
    output.document(&json!({ "status": "ok", "pipeline": file, "extended": extended }));
    let mut lines = vec![format!("wrote {file}")];
    lines.extend(extended.iter().map(|path| format!("added to {path}")));
    lines.push(format!("\n{}", next_steps(&wanted, init, &file)));
    output.text(&lines.join("\n"));
    Ok(())
}

/// A path in the folder that was asked for, without a `./` in front.
fn within(init: &Init, name: &str) -> PathBuf {
    match init.dir.as_os_str() == "." {
        true => PathBuf::from(name),
        false => init.dir.join(name),
    }
}

fn next_steps(wanted: &Wanted, init: &Init, file: &str) -> String {
    let mut steps = Vec::new();
    if !variables(wanted).is_empty() {
        let (example, env) = (within(init, ".env.example"), within(init, ".env"));
        steps.push(format!(
            "cp {} {}   and fill in the connections",
            example.display(),
            env.display()
        ));
    }
    if wanted.source == SourceKind::File {
        steps.push(format!("put files into {}", within(init, "data").display()));
    }
    match wanted.source {
        SourceKind::Ingest => {
            steps.push(format!("rapidbyte serve {}", init.dir.display()));
            let (name, data) = (&wanted.name, "'{\"id\": 1, \"item\": \"tea\"}'");
            steps.push(format!(
                "curl 'http://{LISTEN}/v1/ingest/{name}/orders?wait=true' -H 'Content-Type: application/json' -d {data}"
            ));
        }
        _ => {
            steps.push(format!("rapidbyte doctor {file}"));
            steps.push(format!("rapidbyte plan {file}"));
            steps.push(format!("rapidbyte run {file}"));
        }
    }
    let lines = steps.iter().enumerate();
    let lines: Vec<String> = lines
        .map(|(n, step)| format!("{}. {step}", n + 1))
        .collect();
    lines.join("\n")
}

/// Flags, and answers where there is somebody to ask.
fn wanted(init: &Init) -> Result<Wanted, Failure> {
    let stdin = std::io::stdin();
    let is_asked = stdin.is_terminal() && std::io::stderr().is_terminal();
    if !is_asked {
        return Ok(Wanted {
            source: init
                .source
                .ok_or_else(|| missing("--source", words::<SourceKind>()))?,
            destination: init
                .destination
                .ok_or_else(|| missing("--destination", words::<DestinationKind>()))?,
            name: init.name.clone().unwrap_or_else(|| NAME.into()),
        });
    }
    let (mut answers, mut questions) = (stdin.lock(), std::io::stderr());
    let mut asked =
        |question: &str, default: &str| ask(&mut answers, &mut questions, question, default);
    Ok(Wanted {
        source: match init.source {
            Some(source) => source,
            None => choose(&mut asked, "Where do the rows come from?", "--source")?,
        },
        destination: match init.destination {
            Some(destination) => destination,
            None => choose(&mut asked, "Where do the rows go to?", "--destination")?,
        },
        name: match &init.name {
            Some(name) => name.clone(),
            None => asked("What is the pipeline's name?", NAME)?,
        },
    })
}

fn words<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants().iter();
    let names = values.filter_map(|value| value.to_possible_value());
    names.map(|value| value.get_name().to_owned()).collect()
}

fn missing(flag: &str, known: Vec<String>) -> Failure {
    let text = format!("{flag} is missing, and there is no terminal for questions");
    Failure::new(Class::Config, "invalid_argument", text)
        .hint(format!("{flag} takes {}", known.join(", ")))
}

/// Asks until the answer is one of the words; the first is the default.
fn choose<T: ValueEnum>(
    asked: &mut impl FnMut(&str, &str) -> Result<String, Failure>,
    question: &str,
    flag: &str,
) -> Result<T, Failure> {
    let known = words::<T>();
    let question = format!("{question} ({})", known.join(", "));
    let default = known.first().map(String::as_str).unwrap_or_default();
    for _ in 0..TRIES {
        if let Ok(value) = T::from_str(&asked(&question, default)?, true) {
            return Ok(value);
        }
    }
    let text = format!("no answer was one of {}", known.join(", "));
    Err(Failure::new(Class::Config, "invalid_argument", text).hint(format!("use {flag}")))
}

/// One question; an empty answer is the default.
fn ask(
    answers: &mut impl BufRead,
    questions: &mut impl Write,
    question: &str,
    default: &str,
) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Class::Config,
            "invalid_argument",
            format!("could not read the answer: {error}"),
        )
        .hint("use the flags instead: rapidbyte help init")
    };
    write!(questions, "{question} [{default}] ").map_err(failed)?;
    questions.flush().map_err(failed)?;
    let mut answer = String::new();
    if answers.read_line(&mut answer).map_err(failed)? == 0 {
        return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
    }
    match answer.trim() {
        "" => Ok(default.to_owned()),
        answer => Ok(answer.to_owned()),
    }
}

/// Whether the text is a pipeline of that name, whatever its variables stand for.
fn check(text: &str, name: &str) -> Result<(), Failure> {
    let environment = Environment::from_fn(|_| Some("value".into())).without_env_file();
    let read = Pipeline::from_str(text, Path::new("."), &environment);
    if read.is_ok_and(|pipeline| pipeline.name() == name) {
        return Ok(());
    }
    let text = format!("{name:?} is not a valid pipeline name");
    Err(Failure::new(Class::Config, "invalid_argument", text)
        .hint("--name takes 1 to 64 letters, digits, \"_\", \"-\" and \".\""))
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let text = format!("{} already exists", path.display());
            Failure::new(Class::Config, "file_exists", text)
                .hint("choose another --name, or add --force to overwrite it")
        }
        _ => unwritable(path, &error),
    })
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{}: {error}", path.display());
    Failure::new(Class::Environment, "file_io", text).hint("choose a writable directory with --dir")
}

/// Adds the lines that a file does not have yet; true if there were any.
fn extend(path: &PathBuf, lines: &[String]) -> std::io::Result<bool> {
    let old = match open_regular_file(path) {
        Ok(file) => {
            let size = file.metadata()?.len();
            if size > MAX_TEXT_BYTES {
                return Err(std::io::Error::other("the file exceeds 1 MiB"));
            }
            std::io::read_to_string(file)?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let known: Vec<String> = old.lines().map(key).collect();
    let new: Vec<&String> = lines
        .iter()
        .filter(|line| !known.contains(&key(line)))
        .collect();
    if new.is_empty() {
        return Ok(false);
    }
    let mut text = String::new();
    if !old.is_empty() && !old.ends_with('\n') {
        text.push('\n');
    }
    for line in new {
        text.push_str(line);
        text.push('\n');
    }
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(true)
}

/// Lines of `.env.example`.
fn variables(wanted: &Wanted) -> Vec<String> {
    let mut lines = Vec::new();
    if wanted.source == SourceKind::Postgres {
        lines.push("SOURCE_URL=postgres://reader:secret@db.example.com:5432/shop?sslmode=require");
    }
    if wanted.source == SourceKind::Mongodb {
        lines.push("SOURCE_URL=mongodb://reader:secret@db.example.com:27017/shop?tls=true");
    }
    if wanted.source == SourceKind::Http {
        lines.push("API_URL=https://api.example.com/v1");
        lines.push("API_TOKEN=secret");
    }
    if wanted.destination == DestinationKind::Postgres {
        lines.push("TARGET_URL=postgres://loader:secret@dwh.example.com:5432/dwh?sslmode=require");
    }
    if wanted.destination == DestinationKind::Mongodb {
        lines.push("TARGET_URL=mongodb://loader:secret@dwh.example.com:27017/dwh?tls=true");
    }
    lines.into_iter().map(str::to_owned).collect()
}

fn pipeline(wanted: &Wanted) -> String {
    let source = match wanted.source {
        SourceKind::Postgres => POSTGRES_SOURCE,
        SourceKind::File => FILE_SOURCE,
        SourceKind::Http => HTTP_SOURCE,
        SourceKind::Mongodb => MONGODB_SOURCE,
        SourceKind::Ingest => INGEST_SOURCE,
        SourceKind::Generate => GENERATE_SOURCE,
    };
    let destination = match wanted.destination {
        DestinationKind::Postgres => POSTGRES_DESTINATION,
        DestinationKind::Mongodb => MONGODB_DESTINATION,
        DestinationKind::File if wanted.source == SourceKind::Ingest => PARTS_DESTINATION,
        DestinationKind::File => FILE_DESTINATION,
    };
    let name = &wanted.name;
    let (first, write_mode) = match wanted.source {
        SourceKind::Ingest => (
            "`rapidbyte serve` runs this pipeline: clients send rows to it over HTTP.".to_owned(),
            match wanted.destination {
                DestinationKind::File => "append              # each commit adds a file",
                _ => "append              # or upsert, with primary_key: [id]",
            },
        ),
        _ => (
            format!("First run `rapidbyte plan {name}.yaml`, then `rapidbyte run {name}.yaml`."),
            "replace             # or append; readers see either the old or the new rows",
        ),
    };
    format!(
        "\
# {first}
# Relative paths start at the directory of this file. `rapidbyte help schema` says how an editor
# can complete and check it.

version: 1                        # of the file format
pipeline: {name}

{source}
{destination}  write_mode: {write_mode}

# resources:
#   memory: 256mb                 # limit for the whole run
#   parallelism: 1                # streams at the same time
"
    )
}

const POSTGRES_SOURCE: &str = "\
source:
  use: source-postgres
  config:
    url: \"${SOURCE_URL}\"          # from the environment or .env; no other host can be reached
  streams:
    - name: public.*              # schema.table; `*` and `?` match several
      # columns: [id, total]      # only these, in this order
      # where: \"total > 0\"        # only rows that match this SQL condition
";

const FILE_SOURCE: &str = "\
source:
  use: source-file
  config:
    path: \"data/{stream}.csv\"     # each file is a stream; .jsonl works too
    # null_text: [\"\", \"NULL\"]     # unquoted strings that mean NULL
    # schemas:                    # types instead of the inferred ones (`rapidbyte plan`)
    #   orders: { id: int64 not null, total: \"decimal(18, 2)\" }
  streams:
    - name: \"*\"                   # or single names: orders
      # columns: [id, total]      # only these, in this order
";

const HTTP_SOURCE: &str = "\
source:
  use: source-http
  config:
    base_url: \"${API_URL}\"        # from the environment or .env; no other host can be reached
    auth: { type: bearer, token: \"${API_TOKEN}\" }
    streams:
      orders:
        path: orders              # relative to base_url
        # records: data.items     # the place of the records in the answer
        # pagination: { type: page, size_param: per_page, size: 100 }
        # schema: { id: int64 not null, total: \"decimal(18, 2)\" }   # instead of the inferred types
  streams:
    - orders
";

const MONGODB_SOURCE: &str = "\
source:
  use: source-mongodb
  config:
    url: \"${SOURCE_URL}\"          # from the environment or .env; no other host can be reached
    # collections: [shop_*]       # only these
  streams:
    - name: \"*\"                   # or single collections: orders
      # where: '{\"total\": {\"$gt\": 0}}'   # only documents that match this query
";

const INGEST_SOURCE: &str = "\
source:
  use: ingest                     # the bodies of HTTP requests
  config:
    schema: { id: int64 not null, item: string, price: \"decimal(10, 2)\" }   # the columns of orders
  streams: [orders]
";

const GENERATE_SOURCE: &str = "\
source:
  use: source-generate
  config:
    rows: 1000
    preset: narrow                # or declare them: columns: { id: int64, name: string }
  streams:
    - name: rows
";

const POSTGRES_DESTINATION: &str = "\
destination:
  use: dest-postgres
  config:
    url: \"${TARGET_URL}\"          # from the environment or .env; no other host can be reached
    schema: raw                   # public.orders becomes raw.orders
    # load_method: insert         # if the server refuses COPY
";

const MONGODB_DESTINATION: &str = "\
destination:
  use: dest-mongodb
  config:
    url: \"${TARGET_URL}\"          # from the environment or .env; no other host can be reached
";

const FILE_DESTINATION: &str = "\
destination:
  use: dest-file
  config:
    path: \"out/{stream}.jsonl\"    # or .csv; nothing else can be written
";

const PARTS_DESTINATION: &str = "\
destination:
  use: dest-file
  config:
    path: \"out/{stream}/{part}.jsonl\"   # or .parquet; nothing else can be written
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_pipeline() {
        for source in SourceKind::value_variants() {
            for destination in DestinationKind::value_variants() {
                let wanted = Wanted {
                    source: *source,
                    destination: *destination,
                    name: "shop".into(),
                };
                check(&pipeline(&wanted), "shop").expect("a pipeline");
            }
        }
    }

    #[test]
    fn a_pipeline_from_an_api_names_its_variables() {
        let wanted = Wanted {
            source: SourceKind::Http,
            destination: DestinationKind::File,
            name: "shop".into(),
        };
        let text = pipeline(&wanted);
        assert!(text.contains("use: source-http"), "{text}");
        let lines = variables(&wanted);
        for name in ["API_URL", "API_TOKEN"] {
            assert!(text.contains(&format!("${{{name}}}")), "{text}");
            assert!(lines.iter().any(|line| line.starts_with(name)), "{lines:?}");
        }
    }

    #[test]
    fn questions_have_defaults_and_end() {
        let answer = |typed: &str| {
            let mut typed = std::io::Cursor::new(typed.to_owned());
            let mut shown = Vec::new();
            let mut asked = |q: &str, d: &str| ask(&mut typed, &mut shown, q, d);
            let chosen: Result<SourceKind, Failure> = choose(&mut asked, "From?", "--source");
            (chosen, String::from_utf8(shown).expect("UTF-8"))
        };
        let (chosen, shown) = answer("nowhere\nFile\n");
        assert_eq!(chosen.ok(), Some(SourceKind::File));
        assert_eq!(
            shown,
            "From? (postgres, file, http, mongodb, ingest, generate) [postgres] ".repeat(2)
        );
        assert_eq!(answer("\n").0.ok(), Some(SourceKind::Postgres));
        assert!(answer("").0.is_err());
        assert!(answer("x\ny\nz\nfile\n").0.is_err());
    }
}
