//! The Rust of the fleet's protocols: messages, services of both sides, and their JSON.
//!
//! Messages of Kubernetes and the well-known types come from elsewhere ([`EXTERNAL`]). Called by [`super::outputs`]; the
//! test that compares our definitions with Armada's asks for [`descriptors`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use prost::Message as _;
use prost_build::Module;
use protox::prost_reflect::prost_types::FileDescriptorSet;

use super::Output;

/// Where the definitions are, from the workspace's root.
const PROTO: &str = "crates/wire/proto";
/// The definitions that have services; the rest comes along.
const FILES: &[&str] = &[
    "api/bids.proto",
    "api/event.proto",
    "api/executor.proto",
    "api/job.proto",
    "api/node.proto",
    "api/submit.proto",
    "binoculars.proto",
    "executor.proto",
    "job_sets.proto",
    "scheduling.proto",
];
/// Package -> its file under [`GENERATED`], and whether its messages have a JSON form.
const PACKAGES: &[(&str, &str, bool)] = &[
    ("api", "api.rs", true),
    ("binoculars", "binoculars.rs", true),
    ("pumice.fleet.v1", "pumice/fleet/v1.rs", false),
    ("pumice.job_sets.v1", "pumice/job_sets/v1.rs", false),
    ("schedulerobjects", "schedulerobjects.rs", true),
];
const GENERATED: &str = "crates/wire/src/generated";
/// Packages and types that are not generated -> where they are.
const EXTERNAL: &[(&str, &str)] = &[
    (".google.protobuf", "crate::wellknown"),
    (".k8s.io.api.core.v1", "crate::kubernetes"),
    (".k8s.io.api.networking.v1", "crate::kubernetes"),
    (".k8s.io.apimachinery.pkg.api.resource", "crate::kubernetes"),
];
const HEADER: &str = "//! Written by `cargo xtask codegen` from the definitions under `crates/wire/proto`.\n\n";

/// The definitions under `root`, with all that they import.
pub fn descriptors(root: &Path) -> anyhow::Result<FileDescriptorSet> {
    let mut compiler = protox::Compiler::new([root.join(PROTO)])?;
    compiler.include_imports(true).include_source_info(true);
    for file in FILES {
        compiler.open_file(root.join(PROTO).join(file)).with_context(|| format!("read {PROTO}/{file}"))?;
    }
    Ok(compiler.file_descriptor_set())
}

/// One file for each package.
pub(super) fn outputs(root: &Path) -> anyhow::Result<Vec<Output>> {
    let descriptors = descriptors(root)?;
    let mut code = rust(&descriptors)?;
    let mut json = json(&descriptors)?;
    let mut outputs = Vec::new();
    for (package, file, has_json) in PACKAGES {
        let rust = code.remove(*package).with_context(|| format!("package {package} has no messages"))?;
        let mut content = format!("{HEADER}{rust}");
        if *has_json {
            content.push('\n');
            content.push_str(&json.remove(*package).with_context(|| format!("package {package} has no JSON"))?);
        }
        outputs.push(Output { path: format!("{GENERATED}/{file}"), content });
    }
    ensure!(code.is_empty(), "packages without a file: {:?}", code.keys());
    Ok(outputs)
}

/// Messages and services by package.
fn rust(descriptors: &FileDescriptorSet) -> anyhow::Result<BTreeMap<String, String>> {
    let services = tonic_prost_build::configure().compile_well_known_types(true).build_transport(false);
    let mut config = prost_build::Config::new();
    config.compile_well_known_types().btree_map(["."]).service_generator(services.service_generator());
    for (proto, rust) in EXTERNAL {
        config.extern_path(*proto, *rust);
    }
    let requests =
        descriptors.file.iter().map(|file| (Module::from_protobuf_package_name(file.package()), file.clone()));
    let modules = config.generate(requests.collect())?;
    Ok(modules
        .into_iter()
        .map(|(module, code)| (module.parts().collect::<Vec<_>>().join("."), code))
        .filter(|(package, _)| PACKAGES.iter().any(|(ours, ..)| ours == package))
        .collect())
}

/// The JSON forms by package.
fn json(descriptors: &FileDescriptorSet) -> anyhow::Result<BTreeMap<String, String>> {
    let mut builder = pbjson_build::Builder::new();
    builder.register_descriptors(&descriptors.encode_to_vec())?.ignore_unknown_fields().btree_map(["."]);
    for (proto, rust) in EXTERNAL {
        builder.extern_path(*proto, *rust);
    }
    let packages: Vec<String> =
        PACKAGES.iter().filter(|(.., has_json)| *has_json).map(|(package, ..)| format!(".{package}")).collect();
    let mut written = BTreeMap::new();
    for (package, code) in builder.generate(&packages, |_| Ok(Vec::new()))? {
        written.insert(package.to_string(), String::from_utf8(code)?);
    }
    Ok(written)
}
