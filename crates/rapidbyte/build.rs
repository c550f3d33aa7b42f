//! Puts the bundled connectors into the program.
//!
//! A release build carries them, so that one file is all there is to install; a debug build finds
//! them in a folder beside the program. `RAPIDBYTE_EMBED` names a folder that has them already, as
//! for `cargo xtask`; without it (`cargo install`) they are built here.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The adapters that go around a connector in a scripting language, or into it: `parts/rapidbyte-part-NAME.wasm`
/// below the folder of connectors.
const PARTS: [&str; 3] = ["source", "destination", "sink"];

/// Small enough, and done in a second.
const LEVEL: i32 = 9;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=RAPIDBYTE_EMBED");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (mut entries, mut parts) = (String::new(), String::new());
    if env::var("PROFILE")? == "release" {
        let folder = match env::var_os("RAPIDBYTE_EMBED") {
            Some(folder) => finished(folder.into())?,
            None => build(&out)?,
        };
        for wasm in components(&folder)? {
            entries += &embed(&wasm, &out)?;
        }
        for name in PARTS {
            parts += &part(
                name,
                &folder.join(format!("parts/rapidbyte-part-{name}.wasm")),
            )?;
        }
    }
    let code = format!(
        "/// The connectors inside.\nconst EMBEDDED: &[Embedded] = &[{entries}];\n\
         /// The components that go with connectors in scripting languages, by name.\n\
         pub const PARTS: &[(&str, &[u8])] = &[{parts}];\n"
    );
    Ok(fs::write(out.join("embedded.rs"), code)?)
}

/// Waits until `cargo xtask`, which holds a lock meanwhile, has built the connectors of a folder.
fn finished(folder: PathBuf) -> Result<PathBuf, Box<dyn Error>> {
    if let Ok(lock) = fs::File::open(folder.with_extension("lock")) {
        lock.lock_shared()?;
    }
    Ok(folder)
}

/// Builds the connectors in a target folder of their own: the folder of the cargo that waits for us is
/// locked. Gives their folder.
fn build(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");
    for part in [
        "connectors",
        "crates",
        "wit",
        "xtask",
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    // OUT_DIR is target/release/build/<package>/out.
    let target = out
        .ancestors()
        .nth(4)
        .ok_or("OUT_DIR is in no target folder")?;
    let folder = out.join("connectors");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["run", "--quiet", "--package", "xtask", "--", "components"])
        .arg(&folder)
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", target.join("embedded"));
    // These variables describe the build of the host, and the connectors have another one.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = ["CARGO_ENCODED_", "CARGO_CFG_", "CARGO_FEATURE_", "DEP_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
            || [
                "TARGET",
                "HOST",
                "PROFILE",
                "OPT_LEVEL",
                "DEBUG",
                "RUSTC_WORKSPACE_WRAPPER",
            ]
            .contains(&&*text);
        if is_ours {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the connectors cannot be built:\n{said}").into());
    }
    Ok(folder)
}

/// The components of a folder, in order; none of one that is not there yet, as when the code is
/// only checked.
fn components(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    // Cargo looks at all files below it. It would never find a single one that is not there unchanged.
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    if !folder.exists() {
        println!("cargo::warning=no connectors are carried inside: `cargo xtask build` makes them");
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "wasm")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A component that is carried as it is; nothing where it was not built, as when code is only checked.
fn part(name: &str, file: &Path) -> Result<String, Box<dyn Error>> {
    Ok(match file.is_file() {
        true => format!("({name:?}, include_bytes!({:?})),", file.canonicalize()?),
        false => String::new(),
    })
}

/// Compresses one connector and gives its entry in the table.
fn embed(wasm: &Path, out: &Path) -> Result<String, Box<dyn Error>> {
    let name = wasm.file_stem().and_then(|stem| stem.to_str());
    let name = name.ok_or("a connector without a name")?;
    let bytes = fs::read(wasm)?;
    let packed = out.join(format!("{name}.zst"));
    fs::write(&packed, zstd::bulk::compress(&bytes, LEVEL)?)?;
    let mut entry = String::new();
    writeln!(
        entry,
        "Embedded {{ name: {name:?}, hash: {:?}, size: {}, zstd: include_bytes!({:?}) }},",
        blake3::hash(&bytes).as_bytes(),
        bytes.len(),
        packed.display().to_string()
    )?;
    Ok(entry)
}
