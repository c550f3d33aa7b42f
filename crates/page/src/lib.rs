//! The parts of HTML pages: the style, sections, bars of phases, escaped text, times and numbers.
//!
//! The report of a run and the pages of the server use them. Nothing here does I/O.

pub mod clock;
pub mod escape;
pub mod figures;
pub mod phases;

/// The style of all pages, for a `<style>` element: light and dark, without anything from elsewhere.
pub const STYLE: &str = include_str!("style.css");

/// A section with a heading and a line about its content. All of them are HTML.
pub fn section(title: &str, about: &str, content: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n<p class=\"quiet\">{about}</p>\n{content}</section>\n")
}
