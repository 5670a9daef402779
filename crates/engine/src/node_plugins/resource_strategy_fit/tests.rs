//! Scores and checks of `resource-strategy-fit`, and what of its arguments is refused.

use super::*;
use crate::plugin::tests::small_cluster::{GI, Scene, class_of, config, node_of, refusal, texts};

const GPU: &str = "nvidia.com/gpu";

fn scene() -> Scene {
    Scene::default()
        .node("gpus", &[("cpu", 4_000), ("memory", 8 * GI), (GPU, 4)], |_| {})
        .node("plain", &[("cpu", 4_000), ("memory", 8 * GI)], |_| {})
        .running("used", "gpus", &[("cpu", 1_000), ("memory", 4 * GI), (GPU, 1)], |_| {})
        .pod("both", &[("cpu", 1_000), ("memory", 2 * GI)], |_| {})
        .pod("gpu", &[("cpu", 1_000), (GPU, 2)], |_| {})
        .pod("large", &[("cpu", 4_000), ("memory", GI)], |_| {})
        .pod("packed", &[("cpu", 1_000), ("memory", 2 * GI)], |pod| {
            pod.template.annotations = texts(&[(strategies::TYPE, "MostAllocated"), (strategies::WEIGHT, "{cpu: 3}")]);
        })
}

#[test]
fn each_resource_is_spread_or_packed() {
    let tables = scene().tables();
    let most = "{cpu: {type: MostAllocated, weight: 1}, nvidia.com/*: {type: MostAllocated, weight: 2}}";
    for (arguments, pod, node, score) in [
        ("{}".to_owned(), "both", "gpus", (50 + 25) * 10_000 / 2),
        ("{resourceStrategyFitWeight: 2}".to_owned(), "both", "plain", (75 + 75) * 2_000 / 2),
        ("{resourceStrategyFitWeight: -2}".to_owned(), "both", "plain", 75 * 10_000),
        (format!("{{resources: {most}}}"), "both", "gpus", 50 * 10_000),
        (format!("{{resources: {most}}}"), "gpu", "gpus", (50 + 2 * 75) * 10_000 / 3),
        // The node has none: it counts as empty of it.
        (format!("{{resources: {most}}}"), "gpu", "plain", 25 * 10_000 / 3),
        ("{resources: {cpu: {type: Middling, weight: -1}}}".to_owned(), "both", "gpus", 50 * 10_000),
        ("{}".to_owned(), "large", "gpus", 0),
        ("{}".to_owned(), "packed", "gpus", 50 * 10_000),
    ] {
        let plugin = ResourceStrategyFit::new(&config("resource-strategy-fit", &arguments)).unwrap();
        let found = plugin.score(&tables, class_of(&tables, pod), node_of(&tables, node));
        assert_eq!(found, score, "{pod} on {node} with {arguments}");
    }
}

#[test]
fn scarce_resources_keep_their_nodes_free() {
    let tables = scene().tables();
    let sra = |rest: &str| format!("{{sra: {{enable: true, resources: 'nvidia.com/gpu, chip', weight: 10, {rest}}}}}");
    for (arguments, pod, node, score) in [
        (sra(""), "both", "plain", 100 * 10_000),
        (sra(""), "both", "gpus", 50 * 10_000),
        (sra("resourceWeight: {nvidia.com/gpu: 3}"), "both", "gpus", 25 * 10_000),
        (sra("resourceWeight: {nvidia.com/gpu: -3}"), "both", "gpus", 50 * 10_000),
        // Lacks what the pod asks for.
        (sra(""), "gpu", "plain", 0),
        ("{sra: {enable: false, resources: nvidia.com/gpu, weight: 10}}".to_owned(), "both", "plain", 0),
    ] {
        let with = ResourceStrategyFit::new(&config("resource-strategy-fit", &arguments)).unwrap();
        let without = ResourceStrategyFit::new(&config("resource-strategy-fit", "{}")).unwrap();
        let (class, node_id) = (class_of(&tables, pod), node_of(&tables, node));
        let more = with.score(&tables, class, node_id) - without.score(&tables, class, node_id);
        assert_eq!(more, score, "{pod} on {node} with {arguments}");
    }
}

#[test]
fn cpu_and_memory_beside_idle_devices_are_kept() {
    let tables = scene().tables();
    let kept = |cpu: &str, memory: &str| {
        format!(
            "{{proportional: {{enable: true, resources: nvidia.com/gpu, \
             resourceProportion: {{nvidia.com/gpu.cpu: {cpu}, nvidia.com/gpu.memory: {memory}}}}}}}"
        )
    };
    // Idle on the node: 3 cores, 4 GiB, 3 devices; the pod asks for 1 core and 2 GiB.
    for (arguments, pod, node, refused) in [
        (kept("0.5", "0.5"), "both", "gpus", false),
        (kept("0.7", "0.5"), "both", "gpus", true),
        (kept("0.5", "0.8"), "both", "gpus", true),
        (kept("-1", "0"), "both", "gpus", true),
        (kept("4", "8"), "gpu", "gpus", false),
        (kept("4", "8"), "both", "plain", false),
        ("{}".to_owned(), "both", "gpus", false),
    ] {
        let plugin = ResourceStrategyFit::new(&config("resource-strategy-fit", &arguments)).unwrap();
        let found = plugin.check_use(&tables, class_of(&tables, pod), node_of(&tables, node));
        assert_eq!(found, refused.then_some(Check::Proportional), "{pod} on {node} with {arguments}");
    }
}

#[test]
fn what_does_not_decode_is_refused() {
    for (arguments, part) in [
        ("{resourceStrategyFitWeight: '10'}", "argument resourceStrategyFitWeight must be an integer"),
        ("{resources: [cpu]}", "argument resources must be a mapping"),
        ("{resources: {cpu: MostAllocated}}", "argument resources.cpu must be a mapping"),
        ("{resources: {cpu: {weight: heavy}}}", "argument resources.cpu.weight must be an integer"),
        ("{sra: {enable: 'yes'}}", "argument sra.enable must be true or false"),
        ("{proportional: {resources: a, resourceProportion: {a.cpu: x}}}", "resourceProportion.a.cpu must be a number"),
    ] {
        let text = refusal("resource-strategy-fit", arguments);
        assert!(text.contains(part), "{arguments}: {text}");
    }
}
