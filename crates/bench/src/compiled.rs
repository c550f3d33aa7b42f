//! The time to load a connector with an empty cache. This process compiles each connector once for a
//! bench and alone, as the program does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rapidbyte_runtime::{Origin, Runtime};

use crate::failure::Failure;
use crate::measure::Series;

/// The folder of the bundled connectors, as the program knows it.
const VARIABLE: &str = "RAPIDBYTE_CONNECTORS";

/// Seconds of each connector that was asked for.
pub struct Compiled {
    folder: PathBuf,
    secs: BTreeMap<String, f64>,
}

impl Compiled {
    /// Of the connectors that a program finds.
    pub fn of(rapidbyte: &Path) -> Self {
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        Self {
            folder: named.unwrap_or_else(|| rapidbyte.with_file_name("connectors")),
            secs: BTreeMap::new(),
        }
    }

    /// Seconds for all connectors that the runs of a contender loaded; nothing where it loads none.
    pub fn load_secs(&mut self, series: &Series) -> Result<Option<f64>, Failure> {
        let mut sum = None;
        for name in connectors(series) {
            let secs = match self.secs.get(&name) {
                Some(secs) => *secs,
                None => {
                    let secs = compile(&self.folder.join(format!("{name}.wasm")))?;
                    *self.secs.entry(name).or_insert(secs)
                }
            };
            sum = Some(sum.unwrap_or(0.0) + secs);
        }
        Ok(sum)
    }
}

/// As the report of its first run has them.
fn connectors(series: &Series) -> Vec<String> {
    let report = series.runs.first().and_then(|run| run.report.as_ref());
    let connectors = report.and_then(|report| report.get("connectors")?.as_array());
    let names = connectors
        .into_iter()
        .flatten()
        .filter_map(|each| Some(each.get("name")?.as_str()?.to_owned()));
    names.collect()
}

fn compile(path: &Path) -> Result<f64, Failure> {
    // Without a cache nothing can come from one.
    let connector = Runtime::new(None, |_| ())?.load(&Origin::File(path.to_owned()))?;
    Ok(connector.loaded().load.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::Run;

    fn series(report: serde_json::Value) -> Series {
        Series {
            runs: vec![Run {
                wall_secs: 1.0,
                cpu_secs: None,
                report: Some(report),
                differs: false,
            }],
            ..Series::new("COPY")
        }
    }

    #[test]
    fn each_connector_is_compiled_once_and_native_code_loads_none() {
        let mut compiled = Compiled::of(Path::new("nowhere/rapidbyte"));
        compiled.secs = [("a".to_owned(), 1.0), ("b".to_owned(), 0.5)].into();
        let both = series(json!({"connectors": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(compiled.load_secs(&both).expect("known"), Some(1.5));
        let none = series(json!({"timing": {}}));
        assert_eq!(compiled.load_secs(&none).expect("nothing"), None);
        assert_eq!(
            compiled.load_secs(&Series::new("psql")).expect("nothing"),
            None
        );
        let missing = series(json!({"connectors": [{"name": "c"}]}));
        let Failure(text) = compiled.load_secs(&missing).expect_err("it is not there");
        assert!(text.contains("c.wasm"), "{text}");
    }
}
