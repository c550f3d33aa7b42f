//! `report`: where the pages of runs go.

use std::path::PathBuf;

use serde::Serialize;

use super::declare::keys;
use super::kinds::{name, whole};

const MAX_KEPT: u64 = 10_000;

keys! {
    /// `report`: every run leaves a page in a directory.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Pages {
        /// The directory of the pages, relative to the pipeline's directory; a run creates it.
        pub directory: PathBuf = name()
            .then(|_, directory| Ok(directory.into()))
            .required("write directory: reports"),
        /// Keep this many of the pipeline's newest pages (default 100).
        pub keep: u64 = whole(MAX_KEPT).or(100),
    }
}
