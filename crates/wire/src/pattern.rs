//! Patterns with `*` (any characters) and `?` (one character), as streams and files are named.

/// True when `pattern` covers the whole of `text`. Neither sign crosses a `/`.
pub fn matches(pattern: &str, text: &str) -> bool {
    covers_if(pattern, text, |c| c != '/')
}

/// True when `pattern` covers the whole of `text`. The signs stand for any characters.
pub fn covers(pattern: &str, text: &str) -> bool {
    covers_if(pattern, text, |_| true)
}

/// Both signs stand for characters that `may` be. Takes time proportional to both lengths multiplied at worst; never
/// recurses.
fn covers_if(pattern: &str, text: &str, may: impl Fn(char) -> bool) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stood, and how much of the text it covers so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some('?') if may(text[t]) => {
                p += 1;
                t += 1;
            }
            Some(c) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, covered)) if may(text[covered]) => {
                    star = Some((at, covered + 1));
                    p = at + 1;
                    t = covered + 1;
                }
                _ => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// As [`matches()`], for paths. As in a shell, the dot of a hidden name is matched by a dot alone.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let hidden = |part: &str| part.starts_with('.');
    // A sign stands for no `/`, so that the parts of both belong together.
    let mut parts = pattern.split('/').zip(path.split('/'));
    matches(pattern, path) && parts.all(|(pattern, part)| hidden(pattern) || !hidden(part))
}

/// True when the text has a `*` or a `?`.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::{is_pattern, matches, matches_path};

    #[test]
    fn a_sign_does_not_stand_for_the_dot_of_a_hidden_name() {
        for (pattern, path, expected) in [
            ("/p/*", "/p/a.csv", true),
            ("/p/*", "/p/.env", false),
            ("/p/?env", "/p/.env", false),
            ("/p/.*", "/p/.env", true),
            ("/p/.env", "/p/.env", true),
            ("/p/*/a", "/p/.git/a", false),
            ("/p/.g*/*", "/p/.git/.a", false),
            ("/.p/*", "/.p/a", true),
        ] {
            assert_eq!(matches_path(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn covers_the_whole_text() {
        for (pattern, text) in [
            ("public.*", "public.orders"),
            ("*", ""),
            ("a?c", "abc"),
            ("*.csv", "x.csv"),
            ("a*b*c", "aXbYbZc"),
            ("data/*/x", "data/1/x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("public.*", "private.orders"),
            ("a?c", "ac"),
            ("*.csv", "d/x.csv"),
            ("a", "ab"),
            ("a?c", "a/c"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!(is_pattern("a*") && !is_pattern("a"));
        assert!(!matches(&"*a".repeat(30), &"a".repeat(29)));
    }
}
