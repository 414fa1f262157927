//! Nested profiles: no loop, not too deep. No recursion, so that no configuration exhausts the stack.

use super::{Faults, Place};
use crate::model::{Parts, Target};

/// Most nested endpoints on a way from a profile down.
pub const MAX_NESTING: usize = 10;

/// Edges of the nesting: for each profile the positions of its nested endpoints and their children.
type Children = Vec<Vec<(usize, usize)>>;

pub(super) fn check(parts: &Parts, faults: &mut Faults) {
    let children: Children = parts
        .profiles
        .iter()
        .map(|profile| {
            let nested = profile.endpoints.iter().enumerate();
            nested
                .filter_map(|(j, endpoint)| match endpoint.target {
                    Target::Profile(child) => Some((j, child.0 as usize)),
                    Target::Addresses { .. } | Target::Domain(_) => None,
                })
                .filter(|&(_, child)| child < parts.profiles.len())
                .collect()
        })
        .collect();
    let order = children_last(&children);
    if order.len() < parts.profiles.len() {
        loops(parts, &children, &order, faults);
    } else {
        depth(parts, &children, &order, faults);
    }
}

/// Profiles in an order in which each stands before its children; those that a loop leads to are left out.
fn children_last(children: &Children) -> Vec<usize> {
    let mut parents = vec![0usize; children.len()];
    for &(_, child) in children.iter().flatten() {
        parents[child] += 1;
    }
    let mut order: Vec<usize> = (0..children.len()).filter(|&i| parents[i] == 0).collect();
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        for &(_, child) in &children[at] {
            parents[child] -= 1;
            if parents[child] == 0 {
                order.push(child);
            }
        }
    }
    order
}

fn loops(parts: &Parts, children: &Children, order: &[usize], faults: &mut Faults) {
    let mut done = vec![false; children.len()];
    for &free in order {
        done[free] = true;
    }
    // Whoever has no child left is only below a loop, not on one.
    loop {
        let leaf = |i: &usize| !done[*i] && children[*i].iter().all(|&(_, child)| done[child]);
        let leaves: Vec<usize> = (0..children.len()).filter(leaf).collect();
        if leaves.is_empty() {
            break;
        }
        for leaf in leaves {
            done[leaf] = true;
        }
    }
    for start in 0..children.len() {
        let mut way: Vec<(usize, usize)> = Vec::new(); // profile, endpoint that leads on
        let mut at = start;
        while !done[at] {
            if let Some(first) = way.iter().position(|&(profile, _)| profile == at) {
                let mut names: Vec<&str> =
                    way[first..].iter().map(|&(profile, _)| parts.profiles[profile].name.as_str()).collect();
                names.push(&parts.profiles[at].name);
                let (profile, endpoint) = way[first];
                let message = format!("profiles nest in a loop: {}", names.join(" → "));
                faults.add(Place::Endpoint(profile, endpoint), "profile", message);
                break;
            }
            let Some(&(endpoint, child)) = children[at].iter().find(|&&(_, child)| !done[child]) else {
                break;
            };
            way.push((at, endpoint));
            at = child;
        }
        for (profile, _) in way {
            done[profile] = true;
        }
    }
}

fn depth(parts: &Parts, children: &Children, order: &[usize], faults: &mut Faults) {
    // For each profile: nested endpoints on the longest way down, and the step that leads there.
    let mut longest: Vec<(usize, Option<(usize, usize)>)> = vec![(0, None); children.len()];
    let mut nested = vec![false; children.len()];
    for &at in order.iter().rev() {
        for &(endpoint, child) in &children[at] {
            nested[child] = true;
            if longest[child].0 + 1 > longest[at].0 {
                longest[at] = (longest[child].0 + 1, Some((endpoint, child)));
            }
        }
    }
    for (top, &(levels, step)) in longest.iter().enumerate() {
        let Some((endpoint, _)) = step.filter(|_| !nested[top] && levels > MAX_NESTING) else {
            continue;
        };
        let mut names = vec![parts.profiles[top].name.as_str()];
        let mut at = top;
        while let Some((_, child)) = longest[at].1 {
            names.push(&parts.profiles[child].name);
            at = child;
        }
        let message =
            format!("profiles nest {levels} levels deep; allowed are {MAX_NESTING}: {}", names.join(" → "));
        faults.add(Place::Endpoint(top, endpoint), "profile", message);
    }
}
