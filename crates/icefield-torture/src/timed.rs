//! Runs a function that may never return.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::failure::panic_text;

/// The reason why a function did not return normally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was still running after the timeout; its thread continues.
    Stuck,
    /// It panicked with this message.
    Panicked(String),
}

/// Runs `work` on a new thread for at most `patience`.
///
/// # Errors
/// Returns an error if `work` did not return in time or panicked.
pub fn within<R: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Ending> {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        // The receiver is gone only after the timeout.
        let _ = send.send(result);
    });
    let received = receive.recv_timeout(patience);
    if matches!(received, Err(RecvTimeoutError::Timeout)) {
        return Err(Ending::Stuck);
    }
    match (received, thread.join()) {
        (Ok(result), Ok(())) => Ok(result),
        (_, Err(payload)) => Err(Ending::Panicked(panic_text(payload.as_ref()))),
        (Err(_), Ok(())) => Err(Ending::Panicked("the thread ended without a result".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(within(Duration::from_secs(10), || 7), Ok(7));
        assert_eq!(
            within(Duration::from_millis(1), || std::thread::sleep(Duration::from_secs(1))),
            Err(Ending::Stuck)
        );
        let panicked =
            within(Duration::from_secs(10), || assert!(!std::hint::black_box(true), "planted"));
        assert_eq!(panicked, Err(Ending::Panicked("planted".to_owned())));
    }
}
