//! A document becomes a plan: connectors loaded and opened, streams found, types compared.
//! Nothing is written.

mod check;
mod choose;
mod deletes;
mod delivery;
mod fences;
mod modes;
mod moment;
mod names;
mod open;
mod place;
mod planned;
mod prepared;
mod privileges;
mod readable;
mod refused;
mod replan;
pub(crate) mod shown;
mod step;
mod support;

pub use check::{Checked, Looked, check};
pub(crate) use delivery::{asked_increment, lost_rows};
pub(crate) use fences::{fences_all, fences_runs};
pub(crate) use modes::{rejects, write_mode, write_mode_key};
pub use modes::{sync_mode_name, write_mode_name};
pub use open::{Clocks, Discovered, SourceColumn, Stage, discover, granted, open_destination};
pub(crate) use open::{open_source, planning_sandbox};
pub(crate) use planned::Replay;
pub use planned::{Plan, PlannedColumn, StreamPlan, Taken};
pub(crate) use prepared::Held;
pub use prepared::Prepared;
pub use refused::Refused;
pub(crate) use replan::{difference, replan};
pub use step::Step;
pub(crate) use support::refuse_rejects;
