//! Names of databases.

use rapidbyte_sdk::prelude::*;

/// The most bytes of a name ("MongoDB Limits and Thresholds").
const MAX_BYTES: usize = 63;

/// Whether a database may have this name ("MongoDB Limits and Thresholds"). Errors: `invalid_name`.
pub fn check_database(database: &str) -> Result<()> {
    let is_refused = |c: char| matches!(c, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
    if database.is_empty() || database.len() > MAX_BYTES || database.contains(is_refused) {
        let text = format!("{database:?} is not a name of a database");
        return Err(Error::config("invalid_name", text)
            .hint("use 1 to 63 bytes, without / \\ . \" $, spaces and NUL"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_database_has_is_refused() {
        let long = "a".repeat(63);
        for name in ["a", "a-b_c", "ü", &long] {
            assert!(check_database(name).is_ok(), "{name}");
        }
        let longer = "a".repeat(64);
        for name in [
            "", "a.b", "..", "a/b", "a\\b", "a b", "a\"", "$a", "a\0", &longer,
        ] {
            let refused = check_database(name).unwrap_err();
            assert_eq!(refused.code, "invalid_name", "{name:?}");
        }
    }
}
