//! The tables that are copied, made by the server from the number of each row.

mod columns;

use std::fmt::Write;

use columns::Column;

/// A workload that the bench measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A: seven mixed columns, 92 bytes a row in binary COPY.
    Narrow,
    /// B: the types that are dear to decode, one value in ten NULL.
    Hard,
    /// C: a hundred columns.
    Wide,
    /// D: values of 1 MiB; a thousandth of the rows.
    Fat,
    /// E: the narrow table with 1 to 1000 rows, whatever was asked for.
    Tiny,
    /// F: a tenth of the narrow table's rows changed, and all of them.
    Upsert,
    /// The narrow table from and to CSV, JSON Lines and Parquet.
    Files,
    /// The narrow table with transforms, rejects and policies for columns.
    Steps,
}

/// Rows of the tiny tables.
const TINY_ROWS: [u64; 6] = [1, 10, 50, 100, 500, 1000];
/// Rows of the other tables for one of the fat one.
const ROWS_PER_FAT_ROW: u64 = 1000;

impl Workload {
    pub const ALL: [Self; 8] = [
        Self::Narrow,
        Self::Hard,
        Self::Wide,
        Self::Fat,
        Self::Tiny,
        Self::Upsert,
        Self::Files,
        Self::Steps,
    ];

    /// Those that are one table, which is copied as it is.
    pub const TABLES: [Self; 4] = [Self::Narrow, Self::Hard, Self::Wide, Self::Fat];

    /// How it is called on the command line and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::Hard => "hard",
            Self::Wide => "wide",
            Self::Fat => "fat",
            Self::Tiny => "tiny",
            Self::Upsert => "upsert",
            Self::Files => "files",
            Self::Steps => "steps",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }

    /// How many rows its tables have where `asked` were asked for.
    pub fn sizes(self, asked: &[u64]) -> Vec<u64> {
        match self {
            Self::Tiny => TINY_ROWS.to_vec(),
            Self::Fat => {
                let mut sizes = Vec::new();
                for rows in asked.iter().map(|rows| rows.div_ceil(ROWS_PER_FAT_ROW)) {
                    if !sizes.contains(&rows) {
                        sizes.push(rows);
                    }
                }
                sizes
            }
            _ => asked.to_vec(),
        }
    }

    /// `CREATE TABLE` for a table of this name.
    pub fn create(self, table: &str) -> String {
        let columns: Vec<String> = self
            .columns()
            .into_iter()
            .map(|column| format!("{} {}", column.name, column.declared))
            .collect();
        format!("CREATE TABLE {table} ({})", columns.join(", "))
    }

    /// Fills the table with `rows` rows, the same each time.
    pub fn fill(self, table: &str, rows: u64) -> String {
        self.fill_from(table, &format!("generate_series(1, {rows}) AS i"))
    }

    /// Fills the table from a relation that has the row's number as column `i`.
    pub fn fill_from(self, table: &str, numbers: &str) -> String {
        let mut select = String::new();
        for (at, column) in self.columns().iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let value = &column.value;
            // Every column has its NULLs in rows of its own.
            let _ = match column.has_nulls {
                true => write!(
                    select,
                    "{comma}CASE WHEN (i + {at}) % 10 = 0 THEN NULL ELSE {value} END"
                ),
                false => write!(select, "{comma}{value}"),
            };
        }
        format!("INSERT INTO {table} SELECT {select} FROM {numbers}")
    }

    /// The columns' names, in order.
    pub fn names(self) -> Vec<String> {
        let columns = self.columns().into_iter();
        columns.map(|column| column.name).collect()
    }

    fn columns(self) -> Vec<Column> {
        match self {
            Self::Narrow | Self::Tiny | Self::Upsert | Self::Files | Self::Steps => {
                columns::narrow()
            }
            Self::Hard => columns::hard(),
            Self::Wide => (0..100).map(columns::wide).collect(),
            Self::Fat => columns::fat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_the_workload() {
        assert_eq!(Workload::Narrow.sizes(&[10, 20]), [10, 20]);
        assert_eq!(Workload::Tiny.sizes(&[10, 20]), [1, 10, 50, 100, 500, 1000]);
        assert_eq!(Workload::Fat.sizes(&[10, 100_000, 100]), [1, 100]);
    }
}
