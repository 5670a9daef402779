//! Which cards pods get, what keeps them from a card, and what they are told.

use super::*;
use crate::facts::{ContainerFacts, PodFacts};
use crate::plan::Plan;
use crate::plugin::tests::small_cluster::{Scene, amounts, binds, class_of, config, node_of, refusal, texts};

const NUMBER: &str = "volcano.sh/vgpu-number";
const MEMORY: &str = "volcano.sh/vgpu-memory";
const CORES: &str = "volcano.sh/vgpu-cores";
const CPU: &[(&str, i64)] = &[("cpu", 10)];
const VIRTUAL: &str = "{deviceshare.VGPUEnable: true}";

/// A container that is limited to these amounts.
fn limited(amounts_of: &[(&str, i64)]) -> ContainerFacts {
    ContainerFacts { limits: amounts(amounts_of), ..ContainerFacts::default() }
}

fn with_cards(scene: Scene, name: &str, cards: &str) -> Scene {
    scene.node(name, &[("cpu", 64_000), (NUMBER, 20), (MEMORY, 20_000), (CORES, 200)], |node| {
        node.annotations = texts(&[("volcano.sh/node-vgpu-register", cards)]);
    })
}

/// Two cards, at most three pods on each.
fn two_cards(name: &str) -> Scene {
    let cards = "GPU-0,3,10000,NVIDIA-A100,true,hami-core:GPU-1,3,10000,NVIDIA-V100,true,hami-core:";
    with_cards(Scene::default(), name, cards)
}

fn asks(limits: &'static [(&'static str, i64)]) -> impl Fn(&mut PodFacts) {
    move |pod| pod.template.containers = vec![limited(limits)]
}

fn holds(ids: &str) -> impl Fn(&mut PodFacts) + use<> {
    let annotations = texts(&[("volcano.sh/vgpu-ids-new", ids)]);
    move |pod| {
        pod.annotations = annotations.clone();
        pod.template.containers = vec![limited(&[(NUMBER, 1)])];
    }
}

fn annotation<'p>(plan: &'p Plan, pod: &str, key: &str) -> &'p str {
    let bind = plan.binds.iter().find(|bind| bind.name == pod);
    bind.and_then(|bind| bind.annotations.get(key)).map_or("", String::as_str)
}

#[test]
fn a_card_is_taken_or_passed_over() {
    type Wish = (&'static str, &'static str);
    const SMALL: &[(&str, i64)] = &[(NUMBER, 1), (MEMORY, 1_000), (CORES, 10)];
    let none: &[Wish] = &[];
    for (name, held, asked, wishes, got) in [
        ("the highest index first", "", SMALL, none, "GPU-1,NVIDIA,1000,10:"),
        ("two of them", "", &[(NUMBER, 2), (MEMORY, 5)][..], none, "GPU-1,NVIDIA,5,0:GPU-0,NVIDIA,5,0:"),
        ("three are too many", "", &[(NUMBER, 3), (MEMORY, 5)], none, ""),
        ("memory alone is one card", "", &[(MEMORY, 7)], none, "GPU-1,NVIDIA,7,0:"),
        ("nothing said is all its memory", "", &[(NUMBER, 1)], none, "GPU-1,NVIDIA,10000,0:"),
        ("a percentage", "", &[(NUMBER, 1), ("volcano.sh/vgpu-memory-percentage", 25)], none, "GPU-1,NVIDIA,2500,0:"),
        (
            "a percentage that is none",
            "",
            &[(NUMBER, 1), ("volcano.sh/vgpu-memory-percentage", 101)],
            none,
            "GPU-1,NVIDIA,10000,0:",
        ),
        ("memory is taken", "GPU-1,NVIDIA,9500,10:", SMALL, none, "GPU-0,NVIDIA,1000,10:"),
        ("cores are taken", "GPU-1,NVIDIA,10,95:", SMALL, none, "GPU-0,NVIDIA,1000,10:"),
        ("all cores are taken", "GPU-1,NVIDIA,10,100:", &[(NUMBER, 1), (MEMORY, 5)], none, "GPU-0,NVIDIA,5,0:"),
        (
            "alone on its card",
            "GPU-1,NVIDIA,10,0:",
            &[(NUMBER, 1), (MEMORY, 5), (CORES, 100)],
            none,
            "GPU-0,NVIDIA,5,100:",
        ),
        (
            "three share already",
            "GPU-1,NVIDIA,1,1:;GPU-1,NVIDIA,1,1:;GPU-1,NVIDIA,1,1:",
            SMALL,
            none,
            "GPU-0,NVIDIA,1000,10:",
        ),
        ("wants a type", "", SMALL, &[("nvidia.com/use-gputype", "h100,a100")], "GPU-0,NVIDIA,1000,10:"),
        ("refuses a type", "", SMALL, &[("nvidia.com/nouse-gputype", "v100")], "GPU-0,NVIDIA,1000,10:"),
        ("wants a card", "", SMALL, &[("volcano.sh/vgpu-use-gpuuuid", "GPU-7,GPU-0")], "GPU-0,NVIDIA,1000,10:"),
        ("refuses a card", "", SMALL, &[("volcano.sh/vgpu-nouse-gpuuuid", "GPU-1")], "GPU-0,NVIDIA,1000,10:"),
        ("the node's mode", "", SMALL, &[("volcano.sh/vgpu-mode", "hami-core")], "GPU-1,NVIDIA,1000,10:"),
        ("another mode", "", SMALL, &[("volcano.sh/vgpu-mode", "mig")], ""),
        ("what nobody reads", "GPU-1;x,y;,,,:", SMALL, none, "GPU-1,NVIDIA,1000,10:"),
    ] {
        let scene = two_cards("n1").running("old", "n1", CPU, holds(held)).pod("new", CPU, |pod| {
            asks(asked)(pod);
            pod.template.annotations = texts(wishes);
        });
        let (_, plan) = scene.cycle("deviceshare", VIRTUAL);
        assert_eq!(annotation(&plan, "new", "volcano.sh/vgpu-ids-new"), got, "{name}");
        assert_eq!(plan.binds.len(), usize::from(!got.is_empty()), "{name}");
    }
}

#[test]
fn a_pod_is_told_all_that_its_device_plugin_reads() {
    let scene = two_cards("n1").pod("p", CPU, |pod| {
        let one = limited(&[(NUMBER, 1), (MEMORY, 1_000)]);
        pod.template.containers = vec![one.clone(), ContainerFacts::default(), one];
    });
    let (_, plan) = scene.cycle("deviceshare", VIRTUAL);
    let devices = "GPU-1,NVIDIA,1000,0:;GPU-1,NVIDIA,1000,0:";
    let told = [
        ("volcano.sh/bind-phase", "allocating"),
        ("volcano.sh/bind-time", "1000"),
        ("volcano.sh/devices-to-allocate", devices),
        ("volcano.sh/vgpu-ids-new", devices),
        ("volcano.sh/vgpu-node", "n1"),
        ("volcano.sh/vgpu-time", "1000"),
    ];
    assert_eq!(plan.binds[0].annotations, texts(&told));
}

#[test]
fn a_choice_counts_at_once_and_until_the_pod_shows_it() {
    let pods = ["p1", "p2", "p3"];
    let whole = [(NUMBER, 1)];
    let scene = pods
        .iter()
        .fold(two_cards("n1"), |scene, pod| scene.pod(pod, CPU, |pod| pod.template.containers = vec![limited(&whole)]));
    let (mut world, plan) = scene.cycle("deviceshare", VIRTUAL);
    assert_eq!(binds(&plan).len(), 2);
    let mut ids: Vec<&str> = pods.iter().map(|pod| annotation(&plan, pod, "volcano.sh/vgpu-ids-new")).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["", "GPU-0,NVIDIA,10000,0:", "GPU-1,NVIDIA,10000,0:"]);
    // Neither while the binds are in flight, nor when they are confirmed, is a card given twice.
    assert_eq!(world.cycle(TimeMs(2_000_000)).binds.len(), 0);
    world.bind_result(&"p1".into(), Ok(()), TimeMs(2_000_000));
    assert_eq!(world.cycle(TimeMs(3_000_000)).binds.len(), 0);
    // A refused bind gives its card back, here to the pod itself.
    let refused = plan.binds.iter().map(|bind| bind.uid.clone()).find(|uid| *uid != "p1").unwrap();
    world.bind_result(&refused, Err("no"), TimeMs(3_000_000));
    let again = world.cycle(TimeMs(9_000_000));
    assert_eq!(again.binds.len(), 1);
}

#[test]
fn gangs_that_find_too_few_cards_hold_none() {
    let member = |pod: &mut PodFacts| {
        pod.group = Some("gang".to_owned());
        pod.template.containers = vec![limited(&[(NUMBER, 1)])];
    };
    let group = crate::GroupFacts {
        namespace: "ns".to_owned(),
        name: "gang".to_owned(),
        min_member: 3,
        status: crate::GroupStatus { phase: crate::GroupPhase::Inqueue, ..crate::GroupStatus::default() },
        ..crate::GroupFacts::default()
    };
    let mut scene = two_cards("n1").pod("a", CPU, member).pod("b", CPU, member).pod("c", CPU, member);
    scene.0.push(crate::Delta::GroupUpsert(Box::new(group)));
    let scene = scene.pod("single", CPU, |pod| {
        pod.created = TimeMs(5);
        pod.template.containers = vec![limited(&[(NUMBER, 2)])];
    });
    let (_, plan) = scene.cycle("deviceshare", VIRTUAL);
    assert_eq!(binds(&plan).into_keys().collect::<Vec<_>>(), ["single"]);
}

#[test]
fn policies_order_cards_and_score_nodes() {
    const ASKED: &[(&str, i64)] = &[(NUMBER, 1), (MEMORY, 1_000)];
    let scene = two_cards("n1").running("old", "n1", CPU, holds("GPU-0,NVIDIA,5000,10:")).pod("p", CPU, asks(ASKED));
    for (policy, got, score) in [
        ("binpack", "GPU-0,NVIDIA,1000,0:", 60 * 2),
        ("spread", "GPU-1,NVIDIA,1000,0:", 100 * 2),
        ("", "GPU-1,NVIDIA,1000,0:", 0),
    ] {
        let arguments = format!(
            "{{deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: '{policy}', deviceshare.ScheduleWeight: 2}}"
        );
        let (_, plan) = scene.cycle("deviceshare", &arguments);
        assert_eq!(annotation(&plan, "p", "volcano.sh/vgpu-ids-new"), got, "{policy}");
        let tables = scene.tables();
        let mut plugin = DeviceShare::new(&config("deviceshare", &arguments)).unwrap();
        plugin.open(&tables, TimeMs(0));
        assert_eq!(plugin.score(&tables, class_of(&tables, "p"), node_of(&tables, "n1")), score, "{policy}");
    }
}

#[test]
fn rules_and_groups_keep_pods_on_different_cards() {
    const ASKED: &[(&str, i64)] = &[(NUMBER, 1), (MEMORY, 1_000)];
    let labelled = |app: &'static str| {
        move |pod: &mut PodFacts| {
            asks(ASKED)(pod);
            pod.labels = texts(&[("app", app)]);
        }
    };
    let rules = "{deviceshare.VGPUEnable: true, deviceshare.GPUExclusiveRules: [{app: infer}, {app: train}]}";
    let scene = two_cards("n1")
        .pod("i1", CPU, labelled("infer"))
        .pod("i2", CPU, labelled("infer"))
        .pod("i3", CPU, labelled("infer"))
        .pod("t1", CPU, labelled("train"))
        .pod("other", CPU, labelled("other"));
    let (_, plan) = scene.cycle("deviceshare", rules);
    assert_eq!(binds(&plan).into_keys().collect::<Vec<_>>(), ["i1", "i2", "other", "t1"]);
    let card = |pod| annotation(&plan, pod, "volcano.sh/vgpu-ids-new");
    assert_ne!(card("i1"), card("i2"));

    let spread = |pod: &mut PodFacts| {
        asks(ASKED)(pod);
        pod.group = Some("g".to_owned());
        pod.template.annotations = texts(&[("volcano.sh/vgpu-podgroup-policy", "spread")]);
    };
    let group = crate::GroupFacts {
        namespace: "ns".to_owned(),
        name: "g".to_owned(),
        status: crate::GroupStatus { phase: crate::GroupPhase::Inqueue, ..crate::GroupStatus::default() },
        ..crate::GroupFacts::default()
    };
    let mut scene = two_cards("n1").pod("s1", CPU, spread).pod("s2", CPU, spread).pod("s3", CPU, spread);
    scene.0.push(crate::Delta::GroupUpsert(Box::new(group)));
    let (_, plan) = scene.cycle("deviceshare", VIRTUAL);
    assert_eq!(binds(&plan).len(), 2, "a third card is not there");
}

#[test]
fn nodes_without_registered_cards_take_no_such_pod() {
    const ASKED: &[(&str, i64)] = &[(NUMBER, 1), (MEMORY, 1_000)];
    let bare = Scene::default().node("n1", &[("cpu", 64_000), (NUMBER, 1), (MEMORY, 9_000), (CORES, 100)], |_| {});
    let no_cores = Scene::default().node("n1", &[("cpu", 64_000), (NUMBER, 1), (MEMORY, 9_000)], |node| {
        node.annotations = texts(&[("volcano.sh/node-vgpu-register", "GPU-0,3,9000,NVIDIA,true,hami-core:")]);
    });
    let broken = with_cards(Scene::default(), "n1", "GPU-0,3:");
    let ill = with_cards(Scene::default(), "n1", "GPU-0,3,9000,NVIDIA,false,hami-core:");
    let other = with_cards(Scene::default(), "n1", "GPU-0,3,9000,MLU,true,hami-core:");
    for (name, scene) in
        [("bare", bare), ("no cores", no_cores), ("broken", broken), ("ill", ill), ("of another maker", other)]
    {
        let scene = scene.pod("p", CPU, asks(ASKED)).pod("plain", CPU, |_| {});
        assert_eq!(scene.binds("deviceshare", VIRTUAL).into_keys().collect::<Vec<_>>(), ["plain"], "{name}");
    }
}

#[test]
fn cards_are_shared_by_memory_or_taken_whole() {
    let sharing = "{deviceshare.GPUSharingEnable: true}";
    let number = "{deviceshare.GPUNumberEnable: true}";
    let memory = |amount: i64| vec![("volcano.sh/gpu-memory", amount)];
    let cards = |amount: i64| vec![("volcano.sh/gpu-number", amount)];
    for (name, arguments, unhealthy, held, asked, got) in [
        ("the first with room", sharing, "", "", memory(40), "0"),
        ("the next", sharing, "", "0", memory(40), "1"),
        ("beside another", sharing, "", "0", memory(20), "0"),
        ("too much for one card", sharing, "", "", memory(60), ""),
        ("not on one that is ill", sharing, "0", "", memory(20), "1"),
        ("two whole ones", number, "", "", cards(2), "0,1"),
        ("one is taken", number, "", "1", cards(1), "0"),
        ("too few are left", number, "", "1", cards(2), ""),
        ("too few are well", number, "1, x", "", cards(2), ""),
    ] {
        let scene = Scene::default()
            .node("n1", &[("cpu", 64_000), ("volcano.sh/gpu-memory", 100), ("volcano.sh/gpu-number", 2)], |node| {
                node.annotations = texts(&[("volcano.sh/gpu-unhealthy-ids", unhealthy)]);
            })
            .running("old", "n1", CPU, |pod| {
                if !held.is_empty() {
                    pod.annotations = texts(&[("volcano.sh/gpu-index", held)]);
                }
                pod.template.containers = vec![limited(&[("volcano.sh/gpu-memory", 20)])];
            })
            .pod("new", CPU, |pod| pod.template.containers = vec![limited(&asked)]);
        let (_, plan) = scene.cycle("deviceshare", arguments);
        assert_eq!(annotation(&plan, "new", "volcano.sh/gpu-index"), got, "{name}");
        if !got.is_empty() {
            assert_eq!(annotation(&plan, "new", "volcano.sh/predicate-time"), "1000000000000", "{name}");
        }
    }
}

#[test]
fn an_init_container_counts_by_itself() {
    let container = |init, amount| ContainerFacts { init, ..limited(&[("volcano.sh/gpu-memory", amount)]) };
    for (containers, memory) in [
        (vec![container(false, 10), container(false, 20)], 30),
        (vec![container(true, 40), container(false, 10), container(false, 20)], 40),
        (vec![container(true, 20), container(true, 20), container(false, 10)], 20),
    ] {
        let template = PodTemplate { containers, ..PodTemplate::default() };
        assert_eq!(shared::memory_asked(&template), memory);
    }
}

#[test]
fn arguments_that_exclude_each_other_are_refused() {
    for (arguments, part) in [
        ("{deviceshare.GPUSharingEnable: true, deviceshare.GPUNumberEnable: true}", "GPUNumberEnable must be false"),
        ("{deviceshare.GPUSharingEnable: true, deviceshare.VGPUEnable: true}", "VGPUEnable must be false"),
        ("{deviceshare.GPUNumberEnable: 'true', deviceshare.VGPUEnable: true}", "VGPUEnable must be false"),
        ("{deviceshare.SchedulePolicy: 7}", "SchedulePolicy must be text"),
        ("{deviceshare.GPUExclusiveRules: {app: a}}", "GPUExclusiveRules must be a list"),
        ("{deviceshare.GPUExclusiveRules: [{app: [a]}]}", "GPUExclusiveRules.0.app must be text"),
    ] {
        let text = refusal("deviceshare", arguments);
        assert!(text.contains(part), "{arguments}: {text}");
    }
}

#[test]
fn room_is_made_where_leaving_pods_free_a_card() {
    const WHOLE: &[(&str, i64)] = &[(NUMBER, 2)];
    let scene = two_cards("n1")
        .running("old", "n1", CPU, |pod| {
            holds("GPU-0,NVIDIA,9500,10:")(pod);
            pod.terminating = true;
        })
        .pod("p", CPU, asks(WHOLE));
    let tables = scene.tables();
    let mut plugin = DeviceShare::new(&config("deviceshare", VIRTUAL)).unwrap();
    plugin.open(&tables, TimeMs(0));
    let (class, node) = (class_of(&tables, "p"), node_of(&tables, "n1"));
    assert_eq!(plugin.check_use(&tables, class, node), Some(Check::Device));
    assert_eq!(plugin.check_use_later(&tables, class, node), None);
}

proptest::proptest! {
    /// What others write in annotations is never too much.
    #[test]
    fn annotations_of_any_kind_are_read(
        cards in "([a-zA-Z0-9,:.-]|-?[0-9]{1,20},){0,80}",
        ids in "([a-zA-Z0-9,:;.-]|-?[0-9]{1,20},){0,80}",
        amount in proptest::num::i64::ANY,
    ) {
        let scene = with_cards(Scene::default(), "n1", &cards)
            .running("old", "n1", CPU, holds(&ids))
            .pod("p", CPU, |pod| pod.template.containers = vec![limited(&[(NUMBER, 1), (MEMORY, amount), (CORES, amount)])]);
        let (mut world, _) = scene.cycle("deviceshare", VIRTUAL);
        world.cycle(TimeMs(2_000_000));
    }
}
