//! Takes in the shim's program, if `cargo shim` has built it since its sources were changed. Else pods' shims are copies of `pumice`,
//! which do the same and cost more.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, io};

/// Folders of what the shim's program is made of.
const SOURCES: [&str; 5] = ["shim", "linux", "units", "metrics", "clock"];

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let target = PathBuf::from(env::var_os("TARGET").unwrap_or_default());
    let built = built(&out, &target);
    println!("cargo:rerun-if-changed={}", built.display());
    let mut newest = SystemTime::UNIX_EPOCH;
    for name in SOURCES {
        let sources = Path::new("../../crates").join(name).join("src");
        println!("cargo:rerun-if-changed={}", sources.display());
        newest = newest.max(changed(&sources)?);
    }
    let program = fs::metadata(&built).ok().filter(|found| found.len() > 0);
    let code = match program {
        Some(found) if found.modified()? >= newest => {
            fs::copy(&built, out.join("pumice-shim"))?;
            "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/pumice-shim\")))"
        }
        _ => {
            if program.is_none() {
                mark(&built)?;
            }
            println!(
                "cargo:warning=pods' shims will be copies of pumice: run `cargo shim` before, for a small program"
            );
            "None"
        }
    };
    fs::write(out.join("shim.rs"), format!("static SHIM: Option<&[u8]> = {code};\n"))
}

/// Where `cargo shim` puts it.
fn built(out: &Path, target: &Path) -> PathBuf {
    // `TARGET_DIRECTORY/[TARGET/]PROFILE/build/pumice-HASH/out`
    let folder = out.ancestors().nth(4).unwrap_or(out);
    let folder = if folder.ends_with(target) { folder.parent().unwrap_or(folder) } else { folder };
    folder.join(target).join("shim/pumice-shim")
}

/// When anything in a folder was changed last.
fn changed(folder: &Path) -> io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let at = if entry.file_type()?.is_dir() { changed(&entry.path())? } else { entry.metadata()?.modified()? };
        newest = newest.max(at);
    }
    Ok(newest)
}

/// For a file that is not there cargo would run this again at every build, and compile `pumice` anew.
fn mark(built: &Path) -> io::Result<()> {
    if let Some(folder) = built.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(built)?.set_modified(SystemTime::UNIX_EPOCH)
}
