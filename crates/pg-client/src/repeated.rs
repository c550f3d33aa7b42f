//! Questions that are asked again and again with the same text, such as those about a table before each transaction. For a
//! question to the catalog, the server takes longer to plan it than to answer it.

/// More texts are asked as they are.
const MAX_KNOWN: usize = 16;

/// The texts that a session has asked.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    known: Vec<(String, Step)>,
    /// The number of the next name.
    next: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Asked,
    /// The request that prepares it has no answer yet.
    Preparing(String),
    /// The server has it under this name.
    Prepared(String),
}

impl Repeated {
    /// The statements that ask this. The second time prepares the question, and later ones refer to it.
    pub(crate) fn ask(&mut self, sql: &str) -> String {
        // Several statements cannot be prepared as one. A text may have the sign.
        if !sql.starts_with("SELECT") || sql.contains(';') {
            return sql.to_owned();
        }
        self.prepared(sql, "").unwrap_or_else(|| sql.to_owned())
    }

    /// The statements that execute one statement with these arguments, in parentheses if there are any. `None` the first
    /// time, and while the server prepares it.
    pub(crate) fn prepared(&mut self, sql: &str, arguments: &str) -> Option<String> {
        let found = self.known.iter_mut().find(|(known, _)| known == sql);
        let Some((_, step)) = found else {
            if self.known.len() < MAX_KNOWN {
                self.known.push((sql.to_owned(), Step::Asked));
            }
            return None;
        };
        match step {
            Step::Prepared(name) => Some(format!("EXECUTE {name}{arguments}")),
            Step::Preparing(_) => None,
            Step::Asked => {
                let name = format!("rapidbyte_again_{}", self.next);
                self.next = self.next.wrapping_add(1);
                let statements = format!("PREPARE {name} AS {sql}; EXECUTE {name}{arguments}");
                *step = Step::Preparing(name);
                Some(statements)
            }
        }
    }

    /// The request was answered. If the server refused it, nobody knows how far it came: another name follows.
    pub(crate) fn answered(&mut self, is_ok: bool) {
        for (_, step) in &mut self.known {
            if let Step::Preparing(name) = step {
                *step = match is_ok {
                    true => Step::Prepared(std::mem::take(name)),
                    false => Step::Asked,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_prepared_the_second_time_and_anew_after_an_error() {
        let mut repeated = Repeated::default();
        for (is_ok, expected) in [
            (true, "SELECT 1"),
            (
                false,
                "PREPARE rapidbyte_again_0 AS SELECT 1; EXECUTE rapidbyte_again_0",
            ),
            (
                true,
                "PREPARE rapidbyte_again_1 AS SELECT 1; EXECUTE rapidbyte_again_1",
            ),
            (true, "EXECUTE rapidbyte_again_1"),
            (false, "EXECUTE rapidbyte_again_1"),
            (true, "EXECUTE rapidbyte_again_1"),
        ] {
            assert_eq!(repeated.ask("SELECT 1"), expected);
            repeated.answered(is_ok);
        }
        for sql in ["SET LOCAL a = b; SELECT 1", "SELECT 1; SELECT 2"] {
            for _ in 0..3 {
                assert_eq!(repeated.ask(sql), sql);
                repeated.answered(true);
            }
        }
        for number in 0..2 * MAX_KNOWN {
            let sql = format!("SELECT {number} + 1");
            assert_eq!(repeated.ask(&sql), sql);
        }
        assert_eq!(repeated.known.len(), MAX_KNOWN);
    }
}
