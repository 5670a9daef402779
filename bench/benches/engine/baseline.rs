//! The plain loop: every task against every node, by the same checks and scores, on columns of numbers. No index, no
//! classes, no gangs. What the engine's figures are compared with.

/// A node as the loop sees it: offered and taken cpu (milli) and memory (MiB), and pods.
#[derive(Debug, Clone, Copy)]
struct Node {
    offered: [i64; 2],
    taken: [i64; 2],
    pods: i64,
}

/// Kubernetes' least-requested and balanced scores, as the `nodeorder` plugin has them by default.
fn score(node: &Node, wanted: [i64; 2]) -> i64 {
    let least =
        |which: usize| (node.offered[which] - node.taken[which] - wanted[which]).max(0) * 100 / node.offered[which];
    let part = |which: usize| (node.taken[which] + wanted[which]) as f64 / node.offered[which] as f64;
    let deviation = (part(0) - part(1)).abs() / 2.0;
    (least(0) + least(1)) / 2 + ((1.0 - deviation) * 100.0) as i64
}

/// Places pods of the given requests on so many nodes; gives how many found room.
pub fn place(nodes: usize, pods: impl Iterator<Item = [i64; 2]>) -> usize {
    let mut nodes = vec![Node { offered: [32_000, 256 << 10], taken: [0; 2], pods: 110 }; nodes];
    let mut placed = 0;
    for wanted in pods {
        let fits =
            |node: &Node| node.pods > 0 && (0..2).all(|which| node.taken[which] + wanted[which] <= node.offered[which]);
        let candidates = nodes.iter().enumerate().filter(|(_, node)| fits(node));
        let best = candidates.max_by_key(|(index, node)| (score(node, wanted), std::cmp::Reverse(*index)));
        if let Some((index, _)) = best {
            let node = &mut nodes[index];
            node.pods -= 1;
            (0..2).for_each(|which| node.taken[which] += wanted[which]);
            placed += 1;
        }
    }
    placed
}
