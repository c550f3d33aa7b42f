//! The parts that the lists of jobs and runs share: their query, the form for it, and the links to other pages.

use serde::Deserialize;

use super::{encoded, escape};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::registry::Everything;
use crate::request::{Kind, MAX_NUMBER, Parameters};
use crate::tokens::Action;

/// Pipelines of the filter.
const MAX_CHOICES: usize = 1000;

/// The query of a list. A form sends an empty field for no choice.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Entries of this pipeline.
    #[serde(default)]
    pub pipeline: String,
    /// Entries in this state.
    #[serde(default)]
    pub state: String,
    /// Entries before this one.
    pub before: Option<i64>,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[
        ("pipeline", Kind::Text),
        // Each list has states of its own.
        ("state", Kind::Text),
        ("before", Kind::Number(0, MAX_NUMBER)),
    ];
}

/// A list: its path, and its entries in the plural.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub path: &'static str,
    pub entries: &'static str,
}

/// The pipelines that a form offers.
pub(super) fn choices<'a>(all: &'a Everything, granted: &Granted) -> Vec<&'a str> {
    let names = all.known.keys();
    let names = names.filter(|name| granted.allows(Action::Read, Some(name)));
    names.take(MAX_CHOICES).map(String::as_str).collect()
}

/// The pipelines whose entries the token may see: `None` is all of them.
///
/// # Errors
/// `scope_missing`.
pub(super) fn pipelines_of(
    asked: &Query,
    choices: &[&str],
    granted: &Granted,
) -> Result<Option<Vec<String>>, Refusal> {
    match asked.pipeline.as_str() {
        "" if granted.allows(Action::Read, None) => Ok(None),
        "" => {
            if choices.is_empty() {
                granted.may(Action::Read, None)?;
            }
            Ok(Some(
                choices.iter().map(|name| (*name).to_owned()).collect(),
            ))
        }
        name => {
            granted.may(Action::Read, Some(name))?;
            Ok(Some(vec![name.to_owned()]))
        }
    }
}

impl List {
    /// The form that chooses a pipeline and, if the entries have states, one of them.
    pub(super) fn filters<'s>(
        self,
        asked: &Query,
        choices: &[&str],
        states: impl IntoIterator<Item = &'s str>,
    ) -> String {
        let option = |value: &str, text: &str, chosen: &str| {
            let selected = if value == chosen { " selected" } else { "" };
            let value = escape(value);
            format!(
                "<option value=\"{value}\"{selected}>{}</option>",
                escape(text)
            )
        };
        let mut pipelines = option("", "all", &asked.pipeline);
        let is_other = !asked.pipeline.is_empty() && !choices.contains(&asked.pipeline.as_str());
        let chosen = is_other.then_some(asked.pipeline.as_str());
        for name in chosen.into_iter().chain(choices.iter().copied()) {
            pipelines += &option(name, name, &asked.pipeline);
        }
        let states = states.into_iter();
        let states: String = states
            .map(|state| option(state, state, &asked.state))
            .collect();
        let states = match states.is_empty() {
            true => states,
            false => format!(
                "<div><label for=\"state\">State</label><select id=\"state\" name=\"state\">{}{states}</select></div>\n",
                option("", "all", &asked.state)
            ),
        };
        format!(
            "<form class=\"filters\" action=\"{}\">\n\
             <div><label for=\"pipeline\">Pipeline</label><select id=\"pipeline\" name=\"pipeline\">{pipelines}</select></div>\n\
             {states}<button>Show</button>\n</form>\n",
            self.path
        )
    }

    /// Links to the first page and to the next one, which begins before `older`.
    pub(super) fn pages(self, asked: &Query, older: Option<i64>) -> String {
        let Self { path, entries } = self;
        let path = format!(
            "{path}?pipeline={}&amp;state={}",
            encoded(&asked.pipeline),
            encoded(&asked.state)
        );
        let mut links = String::new();
        if asked.before.is_some() {
            links += &format!("<a href=\"{path}\">Newest {entries}</a>\n");
        }
        if let Some(older) = older {
            links += &format!("<a href=\"{path}&amp;before={older}\">Older {entries}</a>\n");
        }
        match links.is_empty() {
            true => links,
            false => {
                format!("<nav class=\"pages\" aria-label=\"Pages of {entries}\">\n{links}</nav>\n")
            }
        }
    }
}
