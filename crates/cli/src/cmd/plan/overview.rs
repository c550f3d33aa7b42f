//! Many streams as one table, and what several of them have in common once.

use crate::output::{count, one_line, table, wrapped};

/// One stream.
pub struct Line<'a> {
    pub name: &'a str,
    pub location: &'a str,
    pub read: &'static str,
    pub write: &'static str,
    pub rows: Option<u64>,
    pub columns: usize,
    /// Columns that are not exact.
    pub unlike: usize,
    /// Columns, each with a note about it.
    pub told: Vec<(&'a str, &'a str)>,
    pub notes: Vec<&'a str>,
    pub statements: Vec<&'a str>,
}

/// The table, the notes, and the statements.
pub fn text(lines: &[Line<'_>], width: usize) -> String {
    let mut text = vec![String::new(), streams(lines, width)];
    let columns = lines.iter().flat_map(|line| {
        let told = line.told.iter();
        told.map(move |(column, note)| (*note, format!("{}.{column}", line.name)))
    });
    for (note, of) in grouped(columns) {
        let said = format!("{}: {note}", named(&of));
        text.push(wrapped(&said, width, "  - ", "    "));
    }
    let notes = lines
        .iter()
        .flat_map(|line| line.notes.iter().map(|note| (*note, line.name.to_owned())));
    for (note, of) in grouped(notes) {
        let said = match of.len() == lines.len() {
            true => note.to_owned(),
            false => format!("{}: {note}", named(&of)),
        };
        text.push(wrapped(&said, width, "  note: ", "        "));
    }
    let statements = lines
        .iter()
        .flat_map(|line| line.statements.iter().map(|text| (*text, String::new())));
    let statements = grouped(statements);
    if !statements.is_empty() {
        text.push("  will run:".into());
    }
    for (statement, _) in statements {
        text.push(wrapped(&format!("{statement};"), width, "    ", "      "));
    }
    text.push("\n-v shows the columns of each stream".into());
    text.join("\n")
}

/// The table of streams; it omits the targets where they do not fit.
fn streams(lines: &[Line<'_>], width: usize) -> String {
    let mut text = String::new();
    for has_target in [true, false] {
        let row = |cells: [String; 6]| -> Vec<String> {
            let cells = cells.into_iter().enumerate();
            cells
                .filter(|(at, _)| has_target || *at != 1)
                .map(|(_, cell)| cell)
                .collect()
        };
        let head = ["stream", "target", "read", "write", "rows", "columns"];
        let mut rows = vec![row(head.map(str::to_owned))];
        for line in lines {
            rows.push(row([
                one_line(line.name),
                one_line(line.location),
                line.read.to_owned(),
                line.write.to_owned(),
                line.rows.map_or("?".into(), count),
                match line.unlike {
                    0 => line.columns.to_string(),
                    unlike => format!("{}, {unlike} not exact", line.columns),
                },
            ]));
        }
        text = table(&rows, "  ");
        if text
            .lines()
            .all(|line| console::measure_text_width(line) <= width)
        {
            break;
        }
    }
    text
}

/// Each text once, with everything that it applies to, in order.
fn grouped<'a>(said: impl Iterator<Item = (&'a str, String)>) -> Vec<(&'a str, Vec<String>)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (text, of) in said {
        let at = *places.entry(text).or_insert_with(|| {
            groups.push((text, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(of);
    }
    groups
}

/// The first few names, and how many more there are.
fn named(names: &[String]) -> String {
    const MOST: usize = 5;
    let mut text = names[..names.len().min(MOST)].join(", ");
    if let Some(more @ 1..) = names.len().checked_sub(MOST) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_streams_are_a_table_and_a_common_statement_is_shown_once() {
        let names: Vec<String> = (0..30).map(|n| format!("public.t{n:02}")).collect();
        let own: Vec<String> = (0..30)
            .map(|n| format!("CREATE TABLE raw.t{n:02} (id int)"))
            .collect();
        let line = |n: usize| Line {
            name: &names[n],
            location: "raw.t",
            read: "full_refresh",
            write: "replace",
            rows: (n > 0).then_some(1_000),
            columns: 3,
            unlike: n % 2,
            told: vec![("mood", "becomes text")],
            notes: vec!["all rows are read"],
            statements: vec!["CREATE SCHEMA raw", &own[n]],
        };
        let lines: Vec<Line<'_>> = (0..30).map(line).collect();
        let shown = text(&lines, 100);
        assert_eq!(shown.matches("CREATE SCHEMA raw;").count(), 1, "{shown}");
        assert_eq!(shown.matches("CREATE TABLE").count(), 30, "{shown}");
        assert_eq!(
            shown.matches("note: all rows are read").count(),
            1,
            "{shown}"
        );
        let rows: Vec<&str> = shown.lines().skip(1).take(3).collect();
        assert_eq!(
            rows,
            [
                "  stream      target  read          write    rows   columns",
                "  public.t00  raw.t   full_refresh  replace  ?      3",
                "  public.t01  raw.t   full_refresh  replace  1,000  3, 1 not exact",
            ]
        );
        let columns = "  - public.t00.mood, public.t01.mood, public.t02.mood, public.t03.mood, public.t04.mood and 25";
        assert!(shown.contains(columns), "{shown}");
        let narrow = text(&lines, 60);
        assert!(!narrow.contains("target"), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 60),
            "{narrow}"
        );
    }
}
