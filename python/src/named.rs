//! Nothing: a build that names this program builds the extension module.

fn main() {}
