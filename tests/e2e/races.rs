//! Two runs.
