//! `cargo xtask <verb>`: reads the verb and calls the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

const USAGE: &str = "\
usage: cargo xtask <verb>
  codegen          write generated files: custom resource definitions, schemas of built-in kinds
  codegen --check  fail where a committed file differs from what would be generated
  protobuf DIRECTORY  write the table of protobuf messages from Kubernetes' sources, of which DIRECTORY is staging/src/k8s.io
  quick [REVISION] check what changed since a revision, by default since this branch left its upstream
  formats          write the list of what the code spells for others: fields of JSON, flags, rows, SQL
  tidy [CHECK…]    check the rules of the house, all or some: layers, modules, words, layout, licences, links, …";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["codegen"] => codegen(&root()?),
        ["codegen", "--check"] => codegen_check(&root()?),
        ["protobuf", directory] => protobuf(&root()?, Path::new(directory)),
        ["quick"] => quick(&root()?, None),
        ["quick", revision] => quick(&root()?, Some(revision)),
        ["formats"] => formats(&root()?),
        ["tidy", checks @ ..] => tidy(&root()?, checks),
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

/// The workspace's root: the parent of this package.
fn root() -> anyhow::Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?.to_owned())
}

fn codegen(root: &Path) -> anyhow::Result<ExitCode> {
    for path in xtask::codegen::write(root)? {
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

fn codegen_check(root: &Path) -> anyhow::Result<ExitCode> {
    let stale = xtask::codegen::stale(root)?;
    for path in &stale {
        eprintln!("{path}: differs from what is generated; run cargo xtask codegen");
    }
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn protobuf(root: &Path, directory: &Path) -> anyhow::Result<ExitCode> {
    let table = xtask::codegen::protobuf::table(directory)?;
    let path = root.join(xtask::codegen::protobuf::PATH);
    std::fs::write(&path, table).with_context(|| format!("write {}", path.display()))?;
    println!("wrote {}", xtask::codegen::protobuf::PATH);
    Ok(ExitCode::SUCCESS)
}

fn formats(root: &Path) -> anyhow::Result<ExitCode> {
    println!("wrote {}", xtask::tidy::write_formats(root)?);
    Ok(ExitCode::SUCCESS)
}

fn tidy(root: &Path, checks: &[&str]) -> anyhow::Result<ExitCode> {
    let violations = xtask::tidy::run(root, checks)?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    if violations.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} rules are broken", violations.len());
    Ok(ExitCode::FAILURE)
}

fn quick(root: &Path, revision: Option<&str>) -> anyhow::Result<ExitCode> {
    xtask::quick::run(root, revision)?;
    Ok(ExitCode::SUCCESS)
}
