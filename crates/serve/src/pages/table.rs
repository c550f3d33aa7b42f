//! Tables with a caption, whose rows become cards on a narrow screen.

use std::fmt::Write as _;

/// A table. Its caption and its head are ours; its cells are HTML. A `#` before a name: a column of figures.
pub struct Table<'t> {
    pub caption: &'t str,
    pub head: &'t [&'t str],
    pub rows: Vec<Vec<String>>,
    /// Shown instead of a table without rows.
    pub none: &'t str,
}

impl Table<'_> {
    /// The roles are those of the elements: a table that is laid out as cards loses them otherwise.
    pub fn html(&self) -> String {
        if self.rows.is_empty() {
            return format!("<p class=\"quiet\">{}</p>\n", self.none);
        }
        let columns = self.head.iter().map(|name| match name.strip_prefix('#') {
            Some(name) => (name, " class=\"n\""),
            None => (*name, ""),
        });
        let columns: Vec<(&str, &str)> = columns.collect();
        let head: String = columns
            .iter()
            .map(|(name, class)| {
                format!("<th{class} role=\"columnheader\" scope=\"col\">{name}</th>")
            })
            .collect();
        let mut rows = String::new();
        for row in &self.rows {
            rows += "<tr role=\"row\">";
            for (index, (cell, (name, class))) in row.iter().zip(&columns).enumerate() {
                let (element, role) = match index {
                    0 => ("th scope=\"row\"", "rowheader"),
                    _ => ("td", "cell"),
                };
                let end = &element[..2];
                // A String takes everything.
                let _ = write!(
                    rows,
                    "<{element}{class} role=\"{role}\" data-name=\"{name}\">{cell}</{end}>"
                );
            }
            rows += "</tr>\n";
        }
        format!(
            "<table class=\"cards\" role=\"table\">\n<caption>{}</caption>\n\
             <thead role=\"rowgroup\"><tr role=\"row\">{head}</tr></thead>\n\
             <tbody role=\"rowgroup\">\n{rows}</tbody>\n</table>\n",
            self.caption
        )
    }
}
