//! The pipelines of the server: those of a folder that is watched, or those that a program gives.
//!
//! A file that becomes wrong keeps the last pipeline that was right, and its problem is shown.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rapidbyte::{Class, Failure, Pipeline};
use serde_json::json;

use crate::ingest::{Catalogue, Ingest};
use crate::log::Log;
use crate::queue::{Dedup, NAME, declares_columns};
use crate::runs::PipelineSource;
use crate::server::ServeError;

/// Files of a folder.
const MAX_FILES: usize = 10_000;

/// Reads a pipeline file.
pub type Load = dyn Fn(&Path) -> Result<Pipeline, Failure> + Send + Sync;
/// Says what the stages of a pipeline may reach, or why the server cannot work with it.
pub type Inspect = dyn Fn(&Pipeline) -> Result<Arc<[Reach]>, Failure> + Send + Sync;

/// A stage of a pipeline, and what its connector may reach.
#[derive(Debug, Clone)]
pub struct Reach {
    /// Its key in the pipeline file, such as `source`.
    pub key: String,
    /// The name of the connector.
    pub connector: String,
    /// The version of the connector.
    pub version: String,
    /// The grants, a line for each. Without secrets.
    pub may: Vec<String>,
}

/// A pipeline that works, and its problem if its file has become wrong since.
#[derive(Debug, Clone)]
pub struct Known {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Its file. `None` for one that a program gave.
    pub file: Option<PathBuf>,
    /// What its stages may reach. Empty for one that a program gave.
    pub reach: Arc<[Reach]>,
    /// Why the file as it is now is not used.
    pub problem: Option<Failure>,
}

impl Known {
    /// Whether its rows come over HTTP.
    pub fn reads_queue(&self) -> bool {
        self.pipeline.source() == NAME
    }
}

/// A file that no pipeline comes from.
#[derive(Debug, Clone)]
pub struct Broken {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub problem: Failure,
}

/// Pipelines by name. Many threads read them.
pub struct Pipelines {
    folder: Option<Folder>,
    known: RwLock<Arc<Everything>>,
}

/// The state at one moment.
#[derive(Debug, Default)]
pub struct Everything {
    /// Pipelines by name.
    pub known: BTreeMap<String, Known>,
    /// Files without a pipeline, in order.
    pub broken: Vec<Broken>,
}

struct Folder {
    path: PathBuf,
    load: Box<Load>,
    files: RwLock<BTreeMap<PathBuf, File>>,
    /// The versions of the files at the last look. `None` before the first one.
    seen: Mutex<Option<BTreeMap<PathBuf, Version>>>,
}

/// A file as it was last read.
#[derive(Clone)]
struct File {
    version: Version,
    good: Option<(Pipeline, Arc<[Reach]>)>,
    problem: Option<Failure>,
}

/// What tells one content of a file, and of the `.env` beside it, from another.
type Version = [Option<(u64, i64, i64, u64)>; 2];

impl Pipelines {
    /// These pipelines, without a folder.
    ///
    /// # Errors
    /// `DeletesRows`, `ScheduleOfQueue` and `DuplicatePipeline`.
    pub fn new(pipelines: impl IntoIterator<Item = Pipeline>) -> Result<Self, ServeError> {
        let mut known = BTreeMap::new();
        for pipeline in pipelines {
            let name = pipeline.name().to_owned();
            if pipeline.source() == NAME && pipeline.deletes_rows() {
                return Err(ServeError::DeletesRows(name));
            }
            if pipeline.source() == NAME && pipeline.schedule().is_some() {
                return Err(ServeError::ScheduleOfQueue(name));
            }
            let one = Known {
                pipeline,
                file: None,
                reach: Arc::default(),
                problem: None,
            };
            if known.insert(name.clone(), one).is_some() {
                return Err(ServeError::DuplicatePipeline(name));
            }
        }
        let everything = Everything {
            known,
            broken: Vec::new(),
        };
        Ok(Self {
            folder: None,
            known: RwLock::new(Arc::new(everything)),
        })
    }

    /// The files `*.yaml` and `*.yml` of a folder, which [`Pipelines::scan`] reads.
    pub fn of_folder(
        folder: &Path,
        load: impl Fn(&Path) -> Result<Pipeline, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            folder: Some(Folder {
                path: folder.to_owned(),
                load: Box::new(load),
                files: RwLock::default(),
                seen: Mutex::default(),
            }),
            known: RwLock::default(),
        }
    }

    /// The state now.
    pub fn all(&self) -> Arc<Everything> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&known)
    }

    /// A pipeline.
    pub fn get(&self, name: &str) -> Option<Pipeline> {
        let known = self.all();
        known.known.get(name).map(|known| known.pipeline.clone())
    }

    /// Reads the files that are new or have changed. A file that changes while the server works is read when it is the same
    /// at two calls: the first half of a file may be a pipeline without the keys that protect its target. Returns the
    /// names of the pipelines that are other than before.
    ///
    /// # Errors
    /// The folder cannot be read: everything stays as it is.
    pub fn scan(&self, inspect: &Inspect, log: &Log) -> io::Result<Vec<String>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let found = folder.list()?;
        let environment = version(&folder.path.join(".env"));
        let mut seen = folder.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let last_seen = seen.replace(BTreeMap::new());
        let mut files = folder.files.write().unwrap_or_else(PoisonError::into_inner);
        let before = files.len();
        files.retain(|path, _| found.contains(path));
        let mut is_changed = files.len() != before;
        let mut read_again = Vec::new();
        let mut changed = HashSet::new();
        for path in found {
            let now = [version(&path), environment];
            if let Some(seen) = &mut *seen {
                seen.insert(path.clone(), now);
            }
            let last = files.get(&path);
            let is_written = last_seen
                .as_ref()
                .is_some_and(|seen| seen.get(&path) != Some(&now));
            if is_written || last.is_some_and(|file| file.version == now) {
                continue;
            }
            is_changed = true;
            let good = last.and_then(|file| file.good.clone());
            let loaded = (folder.load)(&path).and_then(|pipeline| {
                let reach = usable(&pipeline, inspect);
                let reach = reach.map_err(|failure| pipeline.redacted(&failure))?;
                Ok((pipeline, reach))
            });
            let file = match loaded {
                Ok(loaded) => {
                    changed.insert(loaded.0.name().to_owned());
                    changed.extend(good.map(|(old, _)| old.name().to_owned()));
                    File {
                        version: now,
                        good: Some(loaded),
                        problem: None,
                    }
                }
                Err(problem) => File {
                    version: now,
                    good,
                    problem: Some(problem),
                },
            };
            read_again.push(path.clone());
            files.insert(path, file);
        }
        if is_changed {
            let everything = arrange(&files, &self.all());
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *known, Arc::new(everything));
            let now = Arc::clone(&known);
            drop(known);
            let gone = old
                .known
                .keys()
                .filter(|name| !now.known.contains_key(*name));
            for name in gone {
                let facts = json!({ "pipeline": name });
                log.info(format!("pipeline {name}: its file is gone"), facts);
                changed.insert(name.clone());
            }
        }
        // A reader of the message finds what it says.
        for path in &read_again {
            let now = self.all();
            let broken = now.broken.iter().find(|broken| broken.file == *path);
            if let Some(file) = files.get(path) {
                tell(log, path, file, broken);
            }
        }
        Ok(changed.into_iter().collect())
    }
}

impl Folder {
    /// Its pipeline files, in order.
    fn list(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if matches!(ending, Some("yaml" | "yml")) && path.is_file() {
                found.push(path);
            }
            if found.len() > MAX_FILES {
                let text = format!("more than {MAX_FILES} pipeline files are in the folder");
                return Err(io::Error::other(text));
            }
        }
        found.sort();
        Ok(found)
    }
}

fn version(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.mtime(), found.mtime_nsec(), found.ino()))
}

/// Refuses what the server cannot run.
fn usable(pipeline: &Pipeline, inspect: &Inspect) -> Result<Arc<[Reach]>, Failure> {
    if pipeline.source() == NAME {
        refuse_of_queue(pipeline)?;
    }
    inspect(pipeline)
}

/// Refuses what a pipeline of the queue cannot have.
fn refuse_of_queue(pipeline: &Pipeline) -> Result<(), Failure> {
    if pipeline.deletes_rows() {
        let text = format!(
            "a run of the source {NAME} reads some of the jobs, and write_mode: replace or deletes would delete the \
             rows of all others"
        );
        let failure = Failure::new(Class::Config, "queue_deletes_rows", text);
        return Err(failure.hint("set write_mode: append or upsert, and remove deletes"));
    }
    if pipeline.schedule().is_some() {
        let text = format!(
            "a pipeline of the source {NAME} runs when it has jobs, and schedule would never begin a run"
        );
        let failure = Failure::new(Class::Config, "schedule_of_queue", text);
        return Err(failure.hint("remove schedule"));
    }
    Ok(())
}

/// Of several files with one name, the one that had it keeps it. Among new ones, the first has it.
fn arrange(files: &BTreeMap<PathBuf, File>, before: &Everything) -> Everything {
    let mut everything = Everything::default();
    let had_it = |(path, file): &(&PathBuf, &File)| {
        let good = file.good.as_ref();
        let known = good.and_then(|(pipeline, _)| before.known.get(pipeline.name()));
        known.is_some_and(|known| known.file.as_ref() == Some(*path))
    };
    let (old, new): (Vec<_>, Vec<_>) = files.iter().partition(had_it);
    for (path, file) in old.into_iter().chain(new) {
        let taken = |everything: &Everything, name: &str| {
            let first = everything.known.get(name)?.file.clone()?;
            let text = format!("{} has a pipeline {name:?}, too", first.display());
            let failure = Failure::new(Class::Config, "duplicate_pipeline", text);
            Some(failure.hint("give each pipeline a name of its own"))
        };
        let problem = match &file.good {
            None => file.problem.clone(),
            Some((pipeline, reach)) => match taken(&everything, pipeline.name()) {
                Some(taken) => Some(taken),
                None => {
                    let known = Known {
                        pipeline: pipeline.clone(),
                        file: Some(path.clone()),
                        reach: Arc::clone(reach),
                        problem: file.problem.clone(),
                    };
                    everything.known.insert(pipeline.name().to_owned(), known);
                    None
                }
            },
        };
        everything.broken.extend(problem.map(|problem| Broken {
            file: path.clone(),
            problem,
        }));
    }
    everything
        .broken
        .sort_by(|one, other| one.file.cmp(&other.file));
    everything
}

fn tell(log: &Log, path: &Path, file: &File, broken: Option<&Broken>) {
    let shown = path.display();
    match (&file.problem, &file.good) {
        (None, _) if let Some(Broken { problem, .. }) = broken => log.warn(
            format!("{shown} is not used: {problem}"),
            json!({ "file": path, "error": problem }),
        ),
        (None, Some((pipeline, _))) => {
            let name = pipeline.name();
            log.info(
                format!("pipeline {name}: {shown} is read"),
                json!({ "pipeline": name, "file": path }),
            );
        }
        (Some(problem), good) => {
            let goes_on = match good {
                Some(_) => "the last version that worked goes on",
                None => "it has no version that worked",
            };
            log.warn(
                format!("{shown} is wrong, and {goes_on}: {problem}"),
                json!({ "file": path, "error": problem }),
            );
        }
        (None, None) => {}
    }
}

impl Catalogue for Pipelines {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        let all = self.all();
        let known = all
            .known
            .get(pipeline)
            .filter(|known| known.reads_queue())?;
        let is_known = known.pipeline.streams().contains(&stream);
        is_known.then(|| Ingest {
            is_known_by_content: Dedup::of(&known.pipeline) == Dedup::Content,
            declares_columns: declares_columns(&known.pipeline),
        })
    }

    fn has(&self, pipeline: &str) -> bool {
        self.all().known.contains_key(pipeline)
    }
}

impl PipelineSource for Pipelines {
    fn pipeline(&self, name: &str) -> Option<Pipeline> {
        self.get(name)
    }

    fn names(&self) -> Vec<String> {
        self.all().known.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use rapidbyte::Environment;

    use super::*;

    fn pipelines(folder: &Path) -> Pipelines {
        Pipelines::of_folder(folder, |path| {
            Pipeline::from_file(path, &Environment::from_fn(|_| None).without_env_file())
        })
    }

    fn write(folder: &Path, file: &str, name: &str, mode: &str) {
        let text = format!(
            "version: 1\npipeline: {name}\nsource: {{ use: ingest, config: {{ dedup: content }}, streams: [s] }}\n\
             destination: {{ use: dest-postgres, write_mode: {mode} }}\n"
        );
        // Another file, as editors write it: the time of a file has the resolution of its file system.
        let (new, path) = (folder.join("new"), folder.join(file));
        fs::write(&new, text).expect("written");
        fs::rename(&new, &path).expect("renamed");
    }

    /// Two looks: files are at rest then.
    fn scan(pipelines: &Pipelines) -> Vec<String> {
        let mut names = look(pipelines);
        names.append(&mut look(pipelines));
        names.sort();
        names
    }

    fn look(pipelines: &Pipelines) -> Vec<String> {
        let scanned = pipelines.scan(&|_| Ok(Arc::default()), &Log::default());
        let mut names = scanned.expect("a folder");
        names.sort();
        names
    }

    #[test]
    fn a_wrong_file_keeps_the_last_version_that_worked() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipelines = pipelines(folder.path());
        write(folder.path(), "a.yaml", "a", "append");
        fs::write(folder.path().join("notes.txt"), "nothing").expect("written");
        assert_eq!(scan(&pipelines), ["a"]);
        assert!(scan(&pipelines).is_empty());
        let ingest = pipelines.ingest("a", "s").expect("a stream");
        assert!(ingest.is_known_by_content);
        assert_eq!(pipelines.ingest("a", "t"), None);
        write(folder.path(), "a.yaml", "a", "replace");
        assert!(scan(&pipelines).is_empty());
        let all = pipelines.all();
        let problem = all.known["a"].problem.as_ref().expect("a problem");
        assert_eq!(problem.code, "queue_deletes_rows");
        assert!(pipelines.ingest("a", "s").is_some());
        write(folder.path(), "a.yaml", "b", "append");
        assert_eq!(scan(&pipelines), ["a", "b"]);
        assert!(!pipelines.has("a"));
        assert!(pipelines.has("b"));
    }

    #[test]
    fn a_file_that_is_being_written_is_not_read_before_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipelines = pipelines(folder.path());
        write(folder.path(), "a.yaml", "a", "append");
        // At the start nobody waits.
        assert_eq!(look(&pipelines), ["a"]);
        let path = folder.path().join("b.yaml");
        let whole = fs::read_to_string(folder.path().join("a.yaml")).expect("a file");
        let whole = whole.replace("pipeline: a", "pipeline: b");
        let more = [
            "schema_changes:\n  new_column: fail\n",
            "  type_change: fail\n",
            "  dropped_column: fail\n",
        ];
        let mut text = whole;
        fs::write(&path, &text).expect("written");
        for more in more {
            assert!(look(&pipelines).is_empty());
            assert!(!pipelines.has("b"));
            text.push_str(more);
            fs::write(&path, &text).expect("written");
        }
        assert!(look(&pipelines).is_empty());
        assert_eq!(look(&pipelines), ["b"]);
        assert!(look(&pipelines).is_empty());
    }

    #[test]
    fn a_pipeline_of_the_queue_has_no_schedule() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipelines = pipelines(folder.path());
        write(folder.path(), "a.yaml", "a", "append");
        let text = fs::read_to_string(folder.path().join("a.yaml")).expect("a file");
        let text = format!("{text}schedule: {{ cron: '0 2 * * *' }}\n");
        fs::write(
            folder.path().join("b.yaml"),
            text.replace("pipeline: a", "pipeline: b"),
        )
        .expect("written");
        assert_eq!(scan(&pipelines), ["a"]);
        let all = pipelines.all();
        let [broken] = &*all.broken else {
            panic!("{:?}", all.broken);
        };
        assert_eq!(broken.problem.code, "schedule_of_queue");
        assert!(broken.problem.hint.is_some());
        let environment = Environment::from_fn(|_| None).without_env_file();
        let given = Pipeline::from_str(&text, folder.path(), &environment).expect("a pipeline");
        assert!(matches!(
            Pipelines::new([given]),
            Err(ServeError::ScheduleOfQueue(name)) if name == "a"
        ));
    }

    #[test]
    fn the_first_file_with_a_name_has_it_and_keeps_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipelines = pipelines(folder.path());
        write(folder.path(), "b.yaml", "a", "append");
        write(folder.path(), "a.yaml", "a", "append");
        fs::write(folder.path().join("c.yaml"), "pipeline: [").expect("written");
        scan(&pipelines);
        let all = pipelines.all();
        let file = all.known["a"].file.as_deref().expect("a file");
        assert!(file.ends_with("a.yaml"));
        let broken: Vec<&str> = all
            .broken
            .iter()
            .map(|broken| broken.problem.code.as_str())
            .collect();
        assert_eq!(broken[0], "duplicate_pipeline");
        assert_eq!(broken.len(), 2);
        // A copy that comes later does not take over what is at work.
        write(folder.path(), "0.yaml", "a", "upsert, primary_key: [id]");
        scan(&pipelines);
        let file = pipelines.all().known["a"].file.clone().expect("a file");
        assert!(file.ends_with("a.yaml"), "{file:?}");
        fs::remove_file(folder.path().join("0.yaml")).expect("removed");
        fs::remove_file(folder.path().join("a.yaml")).expect("removed");
        scan(&pipelines);
        assert!(pipelines.all().known["a"].problem.is_none());
        assert_eq!(pipelines.all().broken.len(), 1);
    }
}
