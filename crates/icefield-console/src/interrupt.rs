//! Ctrl-C as a flag, which long work checks between steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// The flag that Ctrl-C sets.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles Ctrl-C and SIGTERM: the first signal sets the flag, the second one ends the process at once.
    pub fn listen() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in the order of registration. The handler that ends the process comes first, so that it
            // tests the flag before the first signal sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))
                .and_then(|_| flag::register(signal, Arc::clone(&flag)))
                .map_err(|error| Failure::Problem(format!("cannot listen for Ctrl-C: {error}")))?;
        }
        Ok(Self(flag))
    }

    /// Returns whether a signal has arrived.
    pub fn asked(&self) -> bool {
        // Relaxed: the flag orders no other memory.
        self.0.load(Ordering::Relaxed)
    }
}
