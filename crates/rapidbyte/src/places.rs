//! Where a user's connectors and compiled code are.

use std::path::PathBuf;

use rapidbyte_runtime::cache::Cache;

/// The user's cache of compiled connectors, by the XDG base directory specification.
///
/// # Errors
/// Why there is none, in a sentence.
pub fn user_cache() -> Result<Cache, String> {
    // A service may run with a HOME that is not there; it is not ours to make.
    let home = variable("HOME").filter(|home| home.is_dir());
    let below_home = |dir: &str| home.as_ref().map(|home| home.join(dir));
    let cache = variable("XDG_CACHE_HOME").or_else(|| below_home(".cache"));
    let state = variable("XDG_STATE_HOME").or_else(|| below_home(".local/state"));
    let (Some(cache), Some(state)) = (cache, state) else {
        let text =
            "neither HOME nor XDG_CACHE_HOME is a directory, so every run compiles the connectors";
        return Err(text.into());
    };
    Cache::open(
        &cache.join("rapidbyte/code"),
        &state.join("rapidbyte/cache.key"),
    )
    .map_err(|error| format!("cannot open the cache of compiled connectors: {error}"))
}

/// The folders of connectors: the list in `RAPIDBYTE_CONNECTORS`, then `connectors` beside the program.
pub fn connector_dirs() -> Vec<PathBuf> {
    let named = std::env::var_os("RAPIDBYTE_CONNECTORS");
    let mut dirs: Vec<PathBuf> = named
        .iter()
        .flat_map(|dirs| std::env::split_paths(dirs))
        .collect();
    let program = std::env::current_exe().and_then(std::fs::canonicalize);
    if let Some(dir) = program.ok().as_deref().and_then(|program| program.parent()) {
        dirs.push(dir.join("connectors"));
    }
    dirs
}

/// A folder's absolute path; others are ignored, as the XDG base directory specification asks.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
