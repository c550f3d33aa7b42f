//! `rapidbyte check PIPELINE`

use rapidbyte::{Checked, Class, Failure};
use serde_json::{Value, json};

use crate::args::{Common, Pipeline};
use crate::output::{Output, counted, table, wrapped};
use crate::setup::{self, Session};

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let items = items(engine.check(&pipeline, &control)?);
    output.text(&text_of(&items, output));
    match judged(items) {
        (documents, None) => {
            output.document(&json!({ "status": "ok", "checks": documents }));
            Ok(())
        }
        (documents, Some(failure)) => {
            output.known(json!({ "checks": documents }));
            Err(failure)
        }
    }
}

/// A document for each check, and the problem that decides. `None` if all is well.
pub fn documents(checked: Checked) -> (Vec<Value>, Option<Failure>) {
    judged(items(checked))
}

fn judged(items: Vec<Item>) -> (Vec<Value>, Option<Failure>) {
    let documents = items.iter().map(Item::document).collect();
    // The plan names all privileges that are missing; a side names what it met first.
    let (planned, sides): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| item.side == PLAN_SIDE);
    let mut problems = planned.into_iter().chain(sides);
    let decides = problems.find_map(|item| item.problem);
    let decides = decides.map(|failure| match failure.class {
        Class::Cancelled => Failure {
            class: Class::Run,
            ..failure
        },
        _ => failure,
    });
    (documents, decides)
}

/// The side of the checks of the plan.
const PLAN_SIDE: &str = "both";

/// One check.
pub struct Item {
    /// `source`, `destination` or `both`.
    pub side: &'static str,
    pub name: String,
    /// The result, in words.
    pub detail: String,
    /// Without secrets; none when it is well.
    pub problem: Option<Failure>,
}

impl Item {
    fn row(&self, output: &Output) -> Vec<String> {
        let (mark, text) = match &self.problem {
            None => (output.paint("32", "ok"), &self.detail),
            Some(failure) => (output.paint("31", "failed"), &failure.message),
        };
        let text = text.replace('\n', "; ");
        vec![mark, self.side.into(), self.name.clone(), text]
    }

    fn document(&self) -> Value {
        json!({
            "side": self.side, "name": self.name, "detail": self.detail, "problem": self.problem,
        })
    }
}

/// A line for each item; below one that failed, what to do about it.
fn text_of(items: &[Item], output: &Output) -> String {
    let rows: Vec<Vec<String>> = items.iter().map(|item| item.row(output)).collect();
    let rows = table(&rows, "");
    let lines = rows.lines().zip(items).map(|(line, item)| {
        let hint = item.problem.as_ref().map(|failure| match &failure.hint {
            Some(hint) => hint.clone(),
            None => format!("`rapidbyte explain {}` says what to do", failure.code),
        });
        match hint {
            // A script keeps its lines: they are to be copied.
            Some(hint) if hint.contains('\n') => {
                format!("{line}\n  hint: {}", hint.replace('\n', "\n  "))
            }
            Some(hint) => {
                let hint = wrapped(&hint, output.width, "  hint: ", "        ");
                format!("{line}\n{hint}")
            }
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The checks of both sides; where they are well, the last item is the plan.
pub fn items(checked: Checked) -> Vec<Item> {
    let items = checked.looked.into_iter().map(|looked| Item {
        side: looked.side,
        name: looked.name,
        detail: looked.detail,
        problem: looked.problem,
    });
    let planned = checked.planned.map(|planned| Item {
        side: PLAN_SIDE,
        name: "plan".into(),
        detail: match &planned {
            Ok(count) => counted(*count, "stream"),
            Err(failure) => failure.message.clone(),
        },
        problem: planned.err(),
    });
    items.chain(planned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_failed_check_says_what_to_do() {
        let item = |name: &str, problem: Option<Failure>| Item {
            side: "source",
            name: name.into(),
            detail: "found".into(),
            problem,
        };
        let failed = |text: &str| Failure::new(Class::Environment, "connect_failed", text);
        let items = [
            item("server", Some(failed("no answer").hint("start the server"))),
            item("user", Some(failed("no rights"))),
            item(
                "table",
                Some(failed("no privilege").hint("-- a script\nGRANT a TO b;\nGRANT c TO d;")),
            ),
            item("file", None),
        ];
        let arguments = crate::args::Arguments::parse_from(["rapidbyte", "version"]);
        let text = text_of(&items, &Output::new(&arguments.common));
        assert_eq!(
            text,
            "failed  source  server  no answer\n  hint: start the server\n\
             failed  source  user    no rights\n  \
             hint: `rapidbyte explain connect_failed` says what to do\n\
             failed  source  table   no privilege\n  \
             hint: -- a script\n  GRANT a TO b;\n  GRANT c TO d;\n\
             ok      source  file    found"
        );
    }
}
