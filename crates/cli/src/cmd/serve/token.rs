//! `rapidbyte serve token`

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use rapidbyte::{Class, Failure, History, PastRuns};
use rapidbyte_serve::{NewToken, Scope, Token, TokenFile};
use serde_json::{Value, json};

use super::{Place, size};
use crate::args::Common;
use crate::output::{Output, table};
use crate::setup;
use rapidbyte_page::clock::utc_ms;

/// The largest limit of rows and jobs. A larger one limits nothing.
const MAX_LIMIT: u64 = 1_000_000_000_000;

/// `serve token`
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and show its secret once.
    #[command(after_help = "\
A scope is ingest, read or operate, alone or with a pipeline. `ingest` sends rows and follows their jobs, `read` shows
pipelines, runs and jobs, `operate` also starts, cancels and replays, and reads bodies.

Examples:
  rapidbyte serve token add --name shop --scope ingest:orders
  rapidbyte serve token add --name me --scope read --scope operate --scope ingest")]
    Add {
        /// A right: `ingest`, `read` or `operate`, alone or with a pipeline, such as `ingest:orders`. May be repeated.
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
        scopes: Vec<Scope>,
        /// Who gets the token.
        #[arg(long, value_name = "NAME", default_value = "")]
        name: String,
        /// Allow this many requests a second.
        #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
        rate: Option<u64>,
        /// Allow bodies of this size a second.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        bytes_per_second: Option<u64>,
        /// Allow this many rows a second. They are counted when they are committed: a token waits for its last rows.
        #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT))]
        rows_per_second: Option<u64>,
        /// Allow this many pending jobs at the same time.
        #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT))]
        open_jobs: Option<u64>,
        #[command(flatten)]
        of: OfServer,
    },
    /// List the tokens, without their secrets.
    #[command(after_help = "Examples:\n  rapidbyte serve token list --output json")]
    List {
        #[command(flatten)]
        of: OfServer,
    },
    /// Remove a token.
    #[command(after_help = "Examples:\n  rapidbyte serve token remove 1a2b3c4d")]
    Remove {
        /// Its id, as `list` shows it.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        of: OfServer,
    },
}

/// Which server.
#[derive(Debug, Args)]
pub struct OfServer {
    /// The folder of the pipeline files (default: this folder).
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub pipelines: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

impl OfServer {
    fn file(&self) -> TokenFile {
        let here = Path::new(".");
        TokenFile::of(&self.place.of(self.pipelines.as_deref().unwrap_or(here)))
    }

    /// The folder of the pipeline files, if the command knows it: with `--data` alone it may be any.
    fn folder(&self) -> Option<&Path> {
        let here = self.place.data.is_none().then_some(Path::new("."));
        self.pipelines.as_deref().or(here)
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::try_from(text.to_owned())
}

pub fn run(verb: &TokenVerb, common: &Common, output: &Output) -> Result<(), Failure> {
    let unusable = |error| {
        Failure::new(Class::Environment, "tokens_unreadable", error)
            .hint("look at tokens.json in the folder of --data")
    };
    match verb {
        TokenVerb::Add {
            scopes,
            name,
            rate,
            bytes_per_second,
            rows_per_second,
            open_jobs,
            of,
        } => {
            let new = NewToken {
                name: name.clone(),
                scopes: scopes.clone(),
                requests_per_second: *rate,
                bytes_per_second: *bytes_per_second,
                rows_per_second: *rows_per_second,
                open_jobs: *open_jobs,
            };
            let (token, secret) = of.file().add(new).map_err(unusable)?;
            warn_of_unknown(scopes, of, common, output);
            output
                .document(&json!({ "status": "ok", "token": document(&token), "secret": secret }));
            if !output.has_documents() {
                // Also when quiet: nobody can see it later.
                output.always(&secret);
            }
            output.text("This is the only time that the secret is shown.");
        }
        TokenVerb::List { of } => {
            let tokens = of.file().read().map_err(unusable)?;
            let documents: Vec<Value> = tokens.iter().map(document).collect();
            output.document(&json!({ "status": "ok", "tokens": documents }));
            let rows = tokens.iter().map(|token| {
                let made = utc_ms(token.created_ms);
                vec![token.id.clone(), token.name.clone(), scopes(token), made]
            });
            let rows: Vec<Vec<String>> = rows.collect();
            output.text(&match rows.as_slice() {
                [] => "no tokens: on 127.0.0.1 requests need none".into(),
                rows => table(rows, ""),
            });
        }
        TokenVerb::Remove { id, of } => {
            if !of.file().remove(id).map_err(unusable)? {
                let text = format!("no token {id:?}");
                return Err(Failure::new(Class::Config, "unknown_token", text)
                    .hint("`rapidbyte serve token list` shows the ids"));
            }
            output.document(&json!({ "status": "ok", "removed": id }));
            output.text(&format!("the token {id} is removed"));
        }
    }
    Ok(())
}

/// A token for a pipeline that does not exist may have a wrong name. The pipeline may also come later.
fn warn_of_unknown(scopes: &[Scope], of: &OfServer, common: &Common, output: &Output) {
    let named: BTreeSet<&str> = scopes.iter().filter_map(Scope::pipeline).collect();
    let Some(folder) = of.folder().filter(|_| !named.is_empty()) else {
        return;
    };
    let known = names(folder, common);
    for name in named.into_iter().filter(|name| !known.contains(*name)) {
        let text = format!(
            "no file of {} has a pipeline {name:?}: the token is for this name only",
            folder.display()
        );
        output.warn_of(&text, json!({ "pipeline": name }));
    }
}

/// The names of the pipelines of a folder. A file without one is left out.
fn names(folder: &Path, common: &Common) -> HashSet<String> {
    let environment = setup::environment(common);
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path()).filter(|path| {
        let ending = path.extension().and_then(OsStr::to_str);
        matches!(ending, Some("yaml" | "yml"))
    });
    let named = files.filter_map(|file| PastRuns::of_file(&file, &environment, &History::Off).ok());
    named.map(|named| named.pipeline().to_owned()).collect()
}

fn scopes(token: &Token) -> String {
    let scopes: Vec<String> = token.scopes.iter().cloned().map(String::from).collect();
    scopes.join(", ")
}

fn document(token: &Token) -> Value {
    json!({
        "id": token.id, "name": token.name, "scopes": token.scopes, "created_ms": token.created_ms,
        "requests_per_second": token.requests_per_second, "bytes_per_second": token.bytes_per_second,
        "rows_per_second": token.rows_per_second, "open_jobs": token.open_jobs,
    })
}
