//! Ctrl-C, as a flag that long work looks at between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Whether the user wants us to stop.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the first Ctrl-C (or SIGTERM) raises the flag; a second one ends the process on the spot.
    pub fn listen() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the handler that ends the process must see the flag as it was before this signal.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))
                .and_then(|_| flag::register(signal, Arc::clone(&flag)))
                .map_err(|error| Failure::Problem(format!("cannot listen for Ctrl-C: {error}")))?;
        }
        Ok(Self(flag))
    }

    /// Whether it was pressed.
    pub fn asked(&self) -> bool {
        // Relaxed: the flag says nothing of other memory.
        self.0.load(Ordering::Relaxed)
    }
}
