//! The error of a language's tool about a script, in one line: componentize-py and componentize-js print
//! their own stack around it.

/// An error in a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// The last exception.
    pub(crate) message: String,
    /// `file:line` of the author's own code, where it comes from.
    pub(crate) place: Option<String>,
}

/// The folder in which componentize-py finds the project. The author did not write the files below `rapidbyte/`.
const PROJECT: &str = "/0/";
const OURS: &str = "rapidbyte/";

/// The last exception that componentize-py shows, if it shows one.
pub(crate) fn by_python(text: &str) -> Option<Said> {
    let text = text.split("\nCaused by:").next()?;
    let text = text.split("\nStack backtrace:").next()?;
    let (_, trace) = text.split_once("Traceback (most recent call last):")?;
    let last = trace.lines().rev().find(|line| !line.trim().is_empty())?;
    // Lines within a frame are indented: a text with such a last line ends before its exception.
    let message = (!last.starts_with(' ')).then(|| last.replace(PROJECT, ""))?;
    let lines: Vec<&str> = trace.lines().map(str::trim).collect();
    let at = lines.iter().rposition(|line| python_frame(line).is_some());
    let place = at.and_then(|at| python_frame(lines[at]));
    let source = at
        .and_then(|at| lines.get(at + 1))
        .filter(|_| place.is_some());
    let source = source.filter(|line| !line.starts_with("File ") && **line != last);
    Some(Said {
        message: with_source(&message, source.copied()),
        place,
    })
}

/// `connector.py:26` of `File "/0/connector.py", line 26, in f`.
fn python_frame(line: &str) -> Option<String> {
    let (path, rest) = line.strip_prefix("File \"")?.split_once("\", line ")?;
    let path = path
        .strip_prefix(PROJECT)
        .filter(|path| !path.starts_with(OURS))?;
    let number = rest.split(',').next()?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| format!("{path}:{number}"))
}

/// The exception that componentize-js shows, if it shows one.
pub(crate) fn by_javascript(text: &str) -> Option<Said> {
    let (_, text) = text.split_once("Exception while evaluating top-level script\n")?;
    let mut lines = text.lines();
    let first = lines.next()?;
    let (place, message) = match first.split_once(' ') {
        Some((place, message)) if javascript_place(place).is_some() => (Some(place), message),
        _ => (None, first),
    };
    let source = place.and_then(|place| lines.next()?.strip_prefix(place)?.strip_prefix(' '));
    let place = place.filter(|place| !place.starts_with(OURS));
    Some(Said {
        message: with_source(message.trim_end_matches(':'), source),
        place: place.and_then(javascript_place),
    })
}

/// `connector.js:10` of `connector.js:10:7`.
fn javascript_place(text: &str) -> Option<String> {
    let (place, column) = text.rsplit_once(':')?;
    let (path, line) = place.rsplit_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!path.is_empty() && is_number(line) && is_number(column)).then(|| place.to_owned())
}

fn with_source(message: &str, source: Option<&str>) -> String {
    match source.map(str::trim).filter(|source| !source.is_empty()) {
        Some(source) => format!("{message}, in: {source}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str, place: Option<&str>) -> Option<Said> {
        Some(Said {
            message: message.into(),
            place: place.map(str::to_owned),
        })
    }

    /// The output of componentize-py 0.25 around the trace of a script.
    fn around(trace: &str) -> String {
        format!(
            "Traceback (most recent call last):\n  File \"/p/.venv/bin/componentize-py\", line 8, in <module>\n    \
             sys.exit(script())\n             ^^^^^^^^\nAssertionError: Traceback (most recent call last):\n  \
             File \"/1/app.py\", line 8, in <module>\n    import source\n{trace}\n\n\nCaused by:\n    \
             an Error: again\n\nStack backtrace:\n   0: <anyhow::Error>::msg::<alloc::string::String>\n  \
             30: _start\n"
        )
    }

    #[test]
    fn python_shows_the_last_exception_and_the_authors_line() {
        let never_closed = "  File \"/0/connector.py\", line 26\n    def streams(self:\n               ^\n\
                            SyntaxError: '(' was never closed";
        let in_a_call = "  File \"/0/connector.py\", line 59, in <module>\n    f()\n    ~^^\n  \
                         File \"/0/connector.py\", line 58, in f\n    return 1/0\n           ~^~\n\
                         ZeroDivisionError: division by zero";
        let in_ours = "  File \"/0/connector.py\", line 9, in <module>\n    import rapidbyte.x\n  \
                       File \"/0/rapidbyte/x.py\", line 3, in <module>\n    y\nNameError: y";
        let no_class =
            "ImportError: cannot import name 'Connector' from 'connector' (/0/connector.py)";
        for (trace, expected) in [
            (
                never_closed,
                said(
                    "SyntaxError: '(' was never closed, in: def streams(self:",
                    Some("connector.py:26"),
                ),
            ),
            (
                in_a_call,
                said(
                    "ZeroDivisionError: division by zero, in: return 1/0",
                    Some("connector.py:58"),
                ),
            ),
            (
                in_ours,
                said(
                    "NameError: y, in: import rapidbyte.x",
                    Some("connector.py:9"),
                ),
            ),
            (
                no_class,
                said(
                    "ImportError: cannot import name 'Connector' from 'connector' (connector.py)",
                    None,
                ),
            ),
        ] {
            assert_eq!(by_python(&around(trace)), expected);
        }
        for text in [
            "",
            "killed",
            "Traceback (most recent call last):\n  File \"/0/a",
        ] {
            assert_eq!(by_python(text), None, "{text}");
        }
    }

    #[test]
    fn javascript_shows_the_exception_and_the_authors_line() {
        let text = |lines: &str| {
            format!(
                "file:///p/componentize.js:365\n    throw new Error(err);\n          ^\n\nError: Failed to initialize \
                 component:\nException while evaluating top-level script\n{lines}\n    at componentize (file:///p)\n"
            )
        };
        for (lines, expected) in [
            (
                "connector.js:10:7 SyntaxError: unexpected token: identifier:\nconnector.js:10:7 const x = ;\n\
                 connector.js:10:7 ......^",
                said(
                    "SyntaxError: unexpected token: identifier, in: const x = ;",
                    Some("connector.js:10"),
                ),
            ),
            (
                "connector.js:69:16 TypeError: can't access property \"x\" of null\nStack:",
                said(
                    "TypeError: can't access property \"x\" of null",
                    Some("connector.js:69"),
                ),
            ),
            (
                "rapidbyte/glue.js:3:10 SyntaxError: no export named: 'Connector'",
                said("SyntaxError: no export named: 'Connector'", None),
            ),
            (
                "ReferenceError: Error loading module \"./nothing.js\"",
                said(
                    "ReferenceError: Error loading module \"./nothing.js\"",
                    None,
                ),
            ),
        ] {
            assert_eq!(by_javascript(&text(lines)), expected);
        }
        assert_eq!(by_javascript("Error: no such file"), None);
    }
}
