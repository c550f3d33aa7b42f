//! Transforms, rejects and policies for columns that change, each measured beside the plain copy of the same table.

use rapidbyte_engine::compress::Compression;

use crate::bench::{Bench, Title};
use crate::databases::Databases;
use crate::failure::Failure;
use crate::measure::measure;
use crate::run::{Digest, Method, TABLE, TARGET, TARGET_SCHEMA};
use crate::workload::Workload;

const WORKLOAD: Workload = Workload::Steps;
/// One row in this many has a longer note than the others.
const LONG_EVERY: u64 = 1000;
const NOTE_CHARACTERS: usize = 20;

/// One way, and what it changes in the pipeline and in the target.
struct Way {
    /// Above its column.
    name: &'static str,
    /// Keys of the stream.
    of_stream: &'static str,
    /// Keys of the pipeline.
    of_pipeline: &'static str,
    /// How the target differs from the source.
    altered: Option<&'static str>,
    /// The columns that stay, and whether the rows with long notes are rejected.
    kept: &'static str,
    rejects: bool,
}

const EVERY: &str = "*";
/// The target keeps its types: otherwise a run makes `varchar(20)` a text.
const REJECTS: &str = "schema_changes: frozen\nrejects: { max_rows: 1000000000, to: rejected }\n";
const WAYS: [Way; 6] = [
    Way {
        name: "COPY",
        of_stream: "",
        of_pipeline: "",
        altered: None,
        kept: EVERY,
        rejects: false,
    },
    Way {
        name: "frozen",
        of_stream: "",
        of_pipeline: "schema_changes: frozen\n",
        altered: None,
        kept: EVERY,
        rejects: false,
    },
    Way {
        name: "hash, filter, cast",
        of_stream: "      transforms:\n        - hash: { columns: [name], salt: salt-of-the-bench }\n        \
                    - filter: quantity >= 0\n        - cast: { quantity: int64 }\n",
        of_pipeline: "",
        altered: Some("ALTER COLUMN quantity TYPE bigint"),
        kept: "id, amount, quantity, active, created_at, note",
        rejects: false,
    },
    Way {
        name: "no reject",
        of_stream: "",
        of_pipeline: REJECTS,
        altered: None,
        kept: EVERY,
        rejects: false,
    },
    Way {
        name: "by checks",
        of_stream: "",
        of_pipeline: REJECTS,
        altered: Some("ALTER COLUMN note TYPE varchar(20)"),
        kept: EVERY,
        rejects: true,
    },
    Way {
        name: "by the server",
        of_stream: "",
        of_pipeline: REJECTS,
        altered: Some("ADD CHECK (length(note) <= 20)"),
        kept: EVERY,
        rejects: true,
    },
];

/// Measures all ways in turn.
pub fn run(bench: &mut Bench, rows: u64) -> Result<(), Failure> {
    let programs = &bench.programs;
    let (size, series) = {
        let databases = Databases::seeded(&bench.server, WORKLOAD, rows)?;
        let mut client = databases.source.client();
        client.batch_execute(&format!(
            "UPDATE {TABLE} SET note = note || '!' WHERE id % {LONG_EVERY} = 0"
        ))?;
        client.batch_execute(&format!("VACUUM (FULL, ANALYZE, FREEZE) {TABLE}"))?;
        let pair = databases.pair();
        let mut contenders = Vec::new();
        for (at, way) in WAYS.iter().enumerate() {
            let pipeline = programs.pipeline(&format!("steps-{at}"), &pipeline(way))?;
            let expected = Digest::of(&databases.source, &way.rows_of(TABLE))?;
            contenders.push((way.name.to_owned(), (way, pipeline, expected)));
        }
        let series = measure(
            &contenders,
            bench.settings.iterations,
            |(way, pipeline, expected)| {
                pair.begin_anew(Some(&way.create()))?;
                let run = programs.run(&pair, pipeline, Method::Copy, Compression::None)?;
                let found = format!("(SELECT {} FROM {TARGET})", way.kept);
                expected.must_be(Digest::of(&databases.target, &found)?)?;
                Ok(run)
            },
        )?;
        (databases.size, series)
    };
    let title = Title {
        workload: WORKLOAD.name(),
        what: format!("with 1 row in {LONG_EVERY} that may be rejected"),
        latency_ms: 0,
    };
    bench.publish(&title, size, series)
}

impl Way {
    /// The rows and columns that the target must have after the run.
    fn rows_of(&self, table: &str) -> String {
        let condition = match self.rejects {
            true => format!(" WHERE length(note) <= {NOTE_CHARACTERS}"),
            false => String::new(),
        };
        format!("(SELECT {} FROM {table}{condition})", self.kept)
    }

    /// The statement that makes the target.
    fn create(&self) -> String {
        let create = WORKLOAD.create(TARGET);
        match self.altered {
            None => create,
            Some(altered) => format!("{create}; ALTER TABLE {TARGET} {altered}"),
        }
    }
}

fn pipeline(way: &Way) -> String {
    format!(
        "version: 1\npipeline: bench\n\
         source:\n  use: source-postgres\n  config: {{ url: \"${{BENCH_SOURCE}}\" }}\n  streams:\n    \
         - name: {TABLE}\n{}\
         destination:\n  use: dest-postgres\n  config: {{ url: \"${{BENCH_TARGET}}\", schema: {TARGET_SCHEMA}, \
         load_method: \"${{BENCH_METHOD}}\" }}\n  write_mode: append\n{}\
         resources: {{ compression: \"${{BENCH_COMPRESSION}}\" }}\n",
        way.of_stream, way.of_pipeline
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_differ_in_what_is_measured_alone() {
        let plain = pipeline(&WAYS[0]);
        assert!(
            plain.contains("- name: public.items\ndestination:\n"),
            "{plain}"
        );
        let changed = pipeline(&WAYS[2]);
        assert!(
            changed.contains("items\n      transforms:\n        - hash:"),
            "{changed}"
        );
        assert!(pipeline(&WAYS[4]).contains("append\nschema_changes: frozen\nrejects: "));
    }

    #[test]
    fn a_target_has_the_column_that_refuses() {
        assert!(WAYS[4].create().ends_with("note TYPE varchar(20)"));
        assert!(WAYS[4].rows_of("t").ends_with("WHERE length(note) <= 20)"));
    }
}
