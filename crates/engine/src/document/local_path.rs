//! Which texts name a file of this machine. A URL or a shell's `~` would become a directory of that
//! name, and the rows would land where nobody looks for them.

/// Why a text is not the path of a local file, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotLocal {
    /// The error's message.
    pub message: String,
    /// The next action.
    pub hint: String,
}

/// Accepts any text that the system would open unchanged.
pub(crate) fn check(path: &str) -> Result<(), NotLocal> {
    if let Some((scheme, rest)) = path.split_once("://")
        && is_scheme(scheme)
    {
        let hint = match scheme.eq_ignore_ascii_case("file") {
            true => format!("write only the path: {rest:?}"),
            false => format!(
                "copy the file to this machine and give its path; for a directory that is really \
                     named \"{scheme}:\", write \"./{path}\""
            ),
        };
        return Err(NotLocal {
            message: format!("{path:?} is a URL, and connectors read and write local files only"),
            hint,
        });
    }
    if path.starts_with('~') {
        let hint = match path.strip_prefix("~/") {
            Some(rest) => format!("write \"${{HOME}}/{rest}\""),
            None => format!("for a name that begins with ~, write \"./{path}\""),
        };
        return Err(NotLocal {
            message: format!("{path:?}: only a shell replaces ~ with the home directory"),
            hint,
        });
    }
    Ok(())
}

/// RFC 3986, 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_home_directories_are_not_local_paths() {
        for (path, hint) in [
            ("s3://bucket/x.csv", "./s3://bucket"),
            ("gs://b/{stream}.csv", "./gs://b"),
            ("az+https://b", "./az+https"),
            ("FILE:///tmp/x.csv", "\"/tmp/x.csv\""),
            ("~/x.csv", "${HOME}/x.csv"),
            ("~me/x.csv", "./~me/x.csv"),
            ("~", "./~"),
        ] {
            let refused = check(path).unwrap_err();
            assert!(refused.hint.contains(hint), "{path}: {}", refused.hint);
        }
    }

    #[test]
    fn paths_that_the_system_opens_are_accepted() {
        for path in [
            "x.csv",
            "../x",
            "/tmp/a:b/x.csv",
            "./s3://bucket",
            "a/~/x",
            "x~",
            "9p://x",
            "{stream}.csv",
            "://x",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }
}
