//! Puts what projects of new connectors begin with into the program.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    Ok(fs::write(out.join("templates.rs"), templates()?)?)
}

/// Files that projects get beside the SDK's sources.
const BESIDE_THE_SDK: [&str; 6] = [
    "crates/rows/wit/script.wit",
    "Cargo.lock",
    "LICENSE",
    "rust-toolchain.toml",
    "wit/digest/digest.wit",
    "wit/rapidbyte.wit",
];

/// The tables of templates and of the SDK: paths and texts.
fn templates() -> Result<String, Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?)
        .join("../..")
        .canonicalize()?;
    let mut code = String::from("/// The files of `templates/`.\n");
    code += &table(
        "TEMPLATES",
        &root,
        &root.join("templates"),
        &files(&root.join("templates"))?,
    )?;
    let mut sdk = Vec::new();
    for package in ["crates/sdk", "crates/wire"] {
        sdk.push(root.join(package).join("Cargo.toml"));
        sdk.extend(files(&root.join(package).join("src"))?);
    }
    sdk.extend(BESIDE_THE_SDK.map(|file| root.join(file)));
    code += "/// The SDK: a workspace of its own, with the versions that it is tested with.\n";
    code += &table("SDK", &root, &root, &sdk)?;
    Ok(code)
}

/// Every file below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Python leaves its compiled modules beside those that it runs.
        if path.ends_with("__pycache__") {
            continue;
        }
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// A table of texts by their paths below `base`. The workspace's own manifest comes with the SDK,
/// reduced to its packages.
fn table(
    name: &str,
    root: &Path,
    base: &Path,
    files: &[PathBuf],
) -> Result<String, Box<dyn Error>> {
    let mut code = format!("const {name}: &[(&str, &str)] = &[");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let path = file
            .strip_prefix(base)?
            .to_str()
            .ok_or("a path that is not UTF-8")?;
        let file = file.to_str().ok_or("a path that is not UTF-8")?;
        writeln!(code, "({path:?}, include_str!({file:?})),")?;
    }
    if name == "SDK" {
        let manifest = root.join("Cargo.toml");
        println!("cargo::rerun-if-changed={}", manifest.display());
        let text = sdk_manifest(&fs::read_to_string(manifest)?)?;
        writeln!(code, "(\"Cargo.toml\", {text:?}),")?;
    }
    Ok(code + "];\n")
}

/// The workspace's manifest with the SDK's packages alone, and without its profiles. Dependencies
/// that nobody takes do no harm.
fn sdk_manifest(text: &str) -> Result<String, Box<dyn Error>> {
    let (before, rest) = text
        .split_once("members = [")
        .ok_or("a workspace without members")?;
    let (_, after) = rest.split_once(']').ok_or("members without an end")?;
    let after = after.split("[profile.").next().unwrap_or_default();
    let after: Vec<&str> = after
        .lines()
        .filter(|line| !line.starts_with("default-members"))
        .collect();
    let members = "members = [\"crates/sdk\", \"crates/wire\"]";
    Ok(format!(
        "{before}{members}{}\n",
        after.join("\n").trim_end()
    ))
}
