//! Shortens a failing sequence of steps by leaving out runs of steps while it still fails.

/// Maximum number of attempts.
const MAX_TRIES: usize = 400;

/// Returns the shortest sequence found for which `fails` still holds. `steps` itself must fail.
pub fn shrink<S: Clone>(mut steps: Vec<S>, mut fails: impl FnMut(&[S]) -> bool) -> Vec<S> {
    let mut run = steps.len() / 2;
    let mut tries = 0;
    while run > 0 {
        let mut at = 0;
        while at < steps.len() && tries < MAX_TRIES {
            tries += 1;
            let end = (at + run).min(steps.len());
            let candidate = [&steps[..at], &steps[end..]].concat();
            if fails(&candidate) {
                steps = candidate;
            } else {
                at = end;
            }
        }
        run /= 2;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_kept_and_nothing_else() {
        let steps: Vec<u32> = (0..200).collect();
        let short = shrink(steps, |steps| steps.contains(&17) && steps.contains(&150));
        assert_eq!(short, [17, 150]);
    }
}
