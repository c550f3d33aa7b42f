//! Counts rows and keeps nothing.
