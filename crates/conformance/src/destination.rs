//! Clauses for a destination.
use rapidbyte_runtime::*;
use serde_json::{Map, Value};
use crate::bench::{Bench, Trouble};
use crate::trial::Judges;
pub(crate) fn judge(_bench: &Bench<'_>, _judges: &mut Judges<'_>) {}
pub(crate) fn denied(_bench: &Bench<'_>, _config: &Map<String, Value>) -> Vec<Result<(), Trouble>> { vec![] }
