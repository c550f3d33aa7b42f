//! `LIKE`: `%` stands for any characters, `_` for one, and `\` takes both literally.

/// Whether the whole text matches.
///
/// # Errors
/// The pattern ends with `\`, and the text reaches its end.
pub fn matches(text: &str, pattern: &str) -> Result<bool, String> {
    let pattern = parts(pattern);
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut part) = (0, 0);
    // The last `%`, and how much of the text it has taken.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(part) {
            Some(Part::Any) => {
                retry = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::One) => {}
            Some(Part::Same(c)) if *c == text[at] => {}
            Some(Part::Unfinished) => return Err("the pattern of LIKE ends with \\".into()),
            _ => {
                let Some((any, taken)) = retry else {
                    return Ok(false);
                };
                retry = Some((any, taken + 1));
                (part, at) = (any + 1, taken + 1);
                continue;
            }
        }
        (part, at) = (part + 1, at + 1);
    }
    Ok(pattern[part..].iter().all(|part| matches!(part, Part::Any)))
}

enum Part {
    Any,
    One,
    Same(char),
    Unfinished,
}

fn parts(pattern: &str) -> Vec<Part> {
    let mut characters = pattern.chars();
    let mut parts = Vec::new();
    while let Some(c) = characters.next() {
        parts.push(match c {
            '%' => Part::Any,
            '_' => Part::One,
            '\\' => characters.next().map_or(Part::Unfinished, Part::Same),
            c => Part::Same(c),
        });
    }
    parts
}
