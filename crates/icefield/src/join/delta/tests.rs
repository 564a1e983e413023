//! Snapshots of the delta store.

use super::*;
use crate::base::hash::HashKind;

/// Returns the payloads of the pairs that a snapshot adds to a key.
fn added(delta: &Delta, snapshot: Snapshot, hash: u64, key: u64) -> Vec<u64> {
    let mut lookup = Lookup::default();
    delta.look_up_all(snapshot, [(hash, key)].into_iter(), usize::MAX, &mut lookup);
    lookup.found.iter().map(|found| found.payload).collect()
}

/// A snapshot keeps its entries, and only these, in the chains.
#[test]
fn snapshots_keep_their_entries() {
    let hash = Hash::new(HashKind::Strong, [1, 2]);
    let word = hash.word(7);
    let mut delta = Delta::default();
    let apply = |delta: &mut Delta, change: Change| {
        delta.reserve(&hash, 1).unwrap();
        delta.apply(change, hash.word(change.key()), 0);
        delta.next_version();
    };
    let toggle = |delta: &mut Delta, times: u64| {
        for payload in 0..times {
            apply(delta, Change::Insert(7, 100 + payload));
            apply(delta, Change::RemovePair(7, 100 + payload));
        }
    };
    apply(&mut delta, Change::Insert(7, 1));
    let first = delta.snapshot();
    apply(&mut delta, Change::RemovePair(7, 1));
    apply(&mut delta, Change::Insert(7, 2));
    let [second, again] = [delta.snapshot(), delta.snapshot()];
    assert_eq!((second == again, second == first), (true, false));
    apply(&mut delta, Change::Remove(7));
    toggle(&mut delta, 100);
    // Other keys enlarge the table of heads.
    for key in 1000..2000 {
        apply(&mut delta, Change::Insert(key, key));
    }
    toggle(&mut delta, 100);
    let of_key = |delta: &Delta| delta.chain(word).filter(|&at| delta.entries[at].key == 7).count();
    assert_eq!(added(&delta, first, word, 7), [1]);
    assert_eq!(added(&delta, second, word, 7), [2]);
    assert_eq!(of_key(&delta), 2, "one for each snapshot");
    delta.release(first);
    delta.release(second);
    apply(&mut delta, Change::Remove(7));
    assert_eq!((added(&delta, again, word, 7), of_key(&delta)), (vec![2], 1), "one is in use");
    delta.release(again);
    apply(&mut delta, Change::Remove(7));
    assert_eq!((of_key(&delta), delta.living()), (0, 1000));
    assert!(delta.snapshots().0.is_empty());
    // The removal of one pair unlinks the dead entries behind it.
    let mut delta = Delta::default();
    for payload in 0..100 {
        apply(&mut delta, Change::Insert(7, payload));
        let snapshot = delta.snapshot();
        apply(&mut delta, Change::RemovePair(7, payload));
        delta.release(snapshot);
        assert_eq!(of_key(&delta), 1);
    }
}

/// Random changes of keys in one chain or two. Each snapshot shows the state in which it was taken.
#[test]
fn snapshots_show_the_states_of_a_model() {
    use std::collections::BTreeMap;
    /// The added and the hidden payloads, sorted, and the number of pairs of the base that are hidden together.
    type State = BTreeMap<u64, (Vec<u64>, Vec<u64>, Option<u64>)>;
    const KEYS: u64 = 5;
    let mut seed = 1_u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    for kind in [HashKind::Strong, HashKind::Constant] {
        let hash = Hash::new(kind, [1, 2]);
        let (mut delta, mut model) = (Delta::default(), State::new());
        let mut taken: Vec<(Snapshot, State)> = Vec::new();
        for step in 0..3000 {
            let (key, payload) = (below(KEYS), below(3));
            let state = model.entry(key).or_default();
            let word = hash.word(key);
            delta.reserve(&hash, 4).unwrap();
            match below(12) {
                0..5 => {
                    delta.apply(Change::Insert(key, payload), word, 0);
                    state.0.push(payload);
                    if below(2) == 0 {
                        delta.apply(Change::Insert(key, 9), word, 0);
                        state.0.push(9);
                    }
                }
                5 => {
                    let in_base = below(2) * 3;
                    delta.apply(Change::Remove(key), word, in_base);
                    *state = (Vec::new(), Vec::new(), (in_base > 0).then_some(in_base));
                }
                kind => {
                    let payloads: Vec<u64> = (0..below(3) + 1).map(|_| below(3)).collect();
                    let payloads = if kind < 9 { &payloads[..] } else { &payloads[..1] };
                    if let &[payload] = payloads {
                        delta.apply(Change::RemovePair(key, payload), word, 0);
                    } else {
                        delta.remove_pairs(word, key, payloads.iter().copied());
                    }
                    for &payload in payloads {
                        match state.0.iter().position(|&found| found == payload) {
                            Some(at) => {
                                state.0.swap_remove(at);
                            }
                            None => state.1.push(payload),
                        }
                    }
                }
            }
            state.0.sort_unstable();
            state.1.sort_unstable();
            delta.next_version();
            if below(5) == 0 {
                taken.push((delta.snapshot(), model.clone()));
            }
            if below(5) == 0 && !taken.is_empty() {
                let (snapshot, _) = taken.swap_remove(below(taken.len() as u64) as usize);
                delta.release(snapshot);
            }
            if step % 1000 == 999 {
                taken.drain(..).for_each(|(snapshot, _)| delta.release(snapshot));
            }
            for (snapshot, model) in &taken {
                let mut lookup = Lookup::default();
                let keys = (0..KEYS).map(|key| (hash.word(key), key));
                delta.look_up_all(*snapshot, keys, usize::MAX, &mut lookup);
                let mut found = State::new();
                for &Found { index, effect, payload } in &lookup.found {
                    let state = found.entry(index as u64).or_default();
                    match effect {
                        Effect::Add => state.0.push(payload),
                        Effect::Hide => state.1.push(payload),
                        Effect::HideAll => assert!(state.2.replace(payload).is_none()),
                    }
                }
                for key in 0..KEYS {
                    let mut found = found.remove(&key).unwrap_or_default();
                    found.0.sort_unstable();
                    found.1.sort_unstable();
                    assert_eq!(found, model.get(&key).cloned().unwrap_or_default(), "{step}");
                }
            }
        }
    }
}

/// Dead entries must be unlinked, because the time of reads and changes grows with the length of the chain.
#[test]
fn the_dead_leave_their_chain() {
    let hash = Hash::new(HashKind::Strong, [1, 2]);
    let word = hash.word(7);
    let mut delta = Delta::default();
    let apply = |delta: &mut Delta, change| {
        delta.reserve(&hash, 1).unwrap();
        delta.apply(change, word, 3);
        delta.chain(word).filter(|&at| delta.entries[at].key == 7).count()
    };
    for _ in 0..200 {
        assert!(apply(&mut delta, Change::Insert(7, 1)) <= 2);
        assert!(apply(&mut delta, Change::Remove(7)) <= 1);
    }
    for payload in 0..100 {
        apply(&mut delta, Change::Insert(7, payload));
        apply(&mut delta, Change::RemovePair(7, payload));
    }
    assert_eq!(apply(&mut delta, Change::Insert(7, 1)), 2, "the pair, and what hides the base");
    assert_eq!((delta.living(), delta.bytes() > 0), (2, true));
    let pairs = [1, 2, 2].into_iter();
    delta.reserve(&hash, 3).unwrap();
    delta.remove_pairs(word, 7, pairs);
    let mut known = KeyDelta::default();
    delta.look_up(word, 7, &mut known);
    assert_eq!((known.added.len(), known.hidden.get(&2), known.hides_all), (0, Some(&2), Some(3)));
    assert_eq!(delta.chain(word).count(), 3);
}
