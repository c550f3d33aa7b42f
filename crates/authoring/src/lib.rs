//! Connectors in the making: the files of a new project, and how a project becomes a component.
//!
//! Nothing here is needed to run a pipeline.

mod build;
mod compose;
mod failure;
mod new;
mod project;
mod said;

pub use build::{Built, build};
pub use compose::Adapters;
pub use new::{Created, create};
pub use project::{Language, Project};
