//! Empty for now.

pub mod channel;
pub mod compress;
pub mod document;
