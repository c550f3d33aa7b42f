//! `rapidbyte:script/sink`: writes to files for a language whose tool does not free the bytes that it
//! hands over, but texts.

#[cfg(target_family = "wasm")]
#[allow(missing_docs, unsafe_code, clippy::all, clippy::pedantic)]
mod part;
